//! Runs @short@ once on made-up inputs, and prints the first numbers of its outputs.
use std::fmt::Debug;

use @prefix@::{count, Dims, Inputs, Model, Tensor};

/// 0, 1/8 ... 7/8 for floats, 0 for whole numbers, which are good indices.
macro_rules! numbers {
    ($type:ty, $shape:expr) => {
        (0..count(&$shape)).map(|i| ((i % 8) as f32 / 8.0) as $type).collect::<Vec<$type>>()
    };
}

fn print<T: Debug, const RANK: usize>(name: &str, tensor: Tensor<'_, T, RANK>) {
    let first = &tensor.data[..tensor.data.len().min(8)];
    println!("{name} {:?} {first:?}", tensor.shape);
}

#[allow(unused_mut)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
@each weights@
    let weights = @prefix@::Weights::read(@prefix@::WEIGHTS)?;
    let mut net = Model::new(&weights)?;
@end@
@each embedded@
    let mut net = Model::new()?;
@end@
    let dims = Dims {
@each dims@
        @dim@: @value@,
@end@
    };
    net.bind(dims)?;
@each inputs@
    let mut input@index@ = numbers!(@type@, dims.shape_of_@tensor@());
@end@
    let outputs = net.run(Inputs {
@each inputs@
@each read@
        @tensor@: &input@index@,
@end@
@each written@
        @tensor@: &mut input@index@,
@end@
@end@
    })?;
@each outputs@
    print("@tensor@", outputs.@tensor@);
@end@
    Ok(())
}
