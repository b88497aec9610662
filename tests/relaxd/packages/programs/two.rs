use std::fmt::Display;

use relaxd_mlp as mlp;
use relaxd_odd as odd;

const _: () = assert!(mlp::Dims::N.max == 8 && odd::Dims::SEQ_LEN.multiple == 4);

fn print(name: &str, shape: &[i64], data: impl Iterator<Item = f64>) {
    let extents: Vec<String> = shape.iter().map(|extent| format!(" {extent}")).collect();
    let values: Vec<String> = data.map(|value| format!(" {value:.6}")).collect();
    println!("{name}{}:{}", extents.concat(), values.concat());
}

fn fails<T, E: Display>(code: impl Fn(&E) -> i32, result: Result<T, E>) {
    if let Err(error) = result {
        println!("{} {error}", code(&error));
    }
}

fn mlp_code(error: &mlp::Error) -> i32 {
    match error.code {
        mlp::Code::Dim => 1,
        _ => 5,
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let weights = mlp::Weights::read(mlp::WEIGHTS)?;
    let mut first = mlp::Model::new(&weights)?;
    let mut second = mlp::Model::new(&weights)?;
    second.bind(mlp::Dims { n: 3 })?;
    let x: Vec<f32> = (0..8 * 32).map(|i| (i % 32) as f32 / 32.0).collect();
    for n in [1, 2, 8] {
        first.bind(mlp::Dims { n })?;
        let y = first.run(mlp::Inputs { x: &x[..n as usize * 32] })?.y;
        print("y", &y.shape, y.data.iter().map(|&value| value.into()));
    }
    let y = second.run(mlp::Inputs { x: &x[..96] })?.y;
    print("y", &y.shape, y.data.iter().map(|&value| value.into()));
    fails(mlp_code, first.bind(mlp::Dims { n: 9 }));
    fails(mlp_code, first.run(mlp::Inputs { x: &x }));
    first.bind(mlp::Dims { n: 2 })?;
    fails(mlp_code, first.run(mlp::Inputs { x: &x }));
    fails(mlp_code, mlp::Weights::copy(&[]));

    let mut net = odd::Model::new()?;
    for (seq_len, values) in [(4, &[1.0, 0.0, 2.0, 0.0, 0.0, 3.0, 0.0, 0.0][..]), (0, &[])] {
        net.bind(odd::Dims { N: 1, n: 2, seq_len })?;
        let outputs = net.run(odd::Inputs { class: values, a_b: &[5, 6], a_b_: &[1, 0] })?;
        print("return", &outputs.return_.shape, outputs.return_.data.iter().map(|&v| v.into()));
        if seq_len == 4 {
            print("N", &outputs.N.shape, outputs.N.data.iter().map(|&v| v as f64));
        }
        print("where", &outputs.where_.shape, outputs.where_.data.iter().map(|&v| v as f64));
    }
    fails(|_| 1, net.bind(odd::Dims { N: 1, n: 2, seq_len: 6 }));
    Ok(())
}
