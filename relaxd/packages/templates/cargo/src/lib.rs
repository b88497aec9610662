//! @name@, compiled by relaxd for @target@.
#![allow(non_snake_case)]

use std::alloc::{alloc_zeroed, dealloc, handle_alloc_error, Layout};
use std::ffi::{c_char, c_int, c_void, CStr};
use std::fmt;
use std::ptr::{self, NonNull};
use std::slice;
@each weights@
use std::path::Path;
use std::sync::Arc;

/// The file of weights in this crate's folder, as it was when the crate was compiled.
pub const WEIGHTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/weights.bin");
@end@

/// Calls of the library; the header that it is described by is `include/@prefix@.h`.
mod ffi {
    use super::{c_char, c_int, c_void};

@each weights@
    #[repr(C)]
    pub struct Interface {
        pub name: *const c_char,
        pub counts: [i32; 4],
        pub tables: [*const c_void; 3],
        pub weights: i64,
    }

@end@
    extern "C" {
        pub fn @prefix@_size() -> usize;
        pub fn @prefix@_open(at: *mut c_void, weights: *const c_void, host: *const c_void) -> c_int;
        pub fn @prefix@_bind(at: *mut c_void, dims: *const i64) -> i64;
        pub fn @prefix@_arena(at: *mut c_void, arena: *mut c_void) -> c_int;
        pub fn @prefix@_run(
            at: *mut c_void,
            inputs: *const *const c_void,
            outputs: *const *mut c_void,
        ) -> c_int;
        pub fn @prefix@_shape(at: *const c_void, output: c_int) -> *const i64;
        pub fn @prefix@_output(at: *const c_void, output: c_int) -> *const c_void;
        pub fn @prefix@_failure(at: *const c_void) -> *const c_char;
@each weights@
        pub fn @prefix@_interface() -> *const Interface;
@end@
        pub fn @prefix@_close(at: *mut c_void);
    }
}

/// Which kind of thing a call found wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Code {
    /// A dim is out of its range, or no multiple of what it must be.
    Dim,
    /// Values of the inputs contradict the model.
    Check,
    /// There is no memory left, or tensors are larger than memory can be.
    Memory,
    /// A kernel failed.
    Kernel,
    /// An input has another length than the dims give it, or calls are in the wrong order.
    Usage,
    /// The file of weights cannot be read, or is of another model.
    Weights,
}

/// What a call found wrong.
#[derive(Clone, Debug)]
pub struct Error {
    pub code: Code,
    pub message: String,
}

impl Error {
    fn new(code: Code, message: String) -> Self {
        Error { code, message }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// The values that a dim may have: multiples of one number, from min to max.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub min: i64,
    pub max: i64,
    pub multiple: i64,
}

/// What `Model::bind` takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dims {
@each dims@
    /// @about@
    pub @dim@: i64,
@end@
}

impl Dims {
@each dims@
    /// The values of `@dim@`.
    pub const @constant@: Range = Range { min: @min@, max: @max@, multiple: @multiple@ };
@end@
@each inputs@

    /// The shape of `@tensor@` at dims that `Model::bind` takes.
    pub fn shape_of_@tensor@(&self) -> [i64; @rank@] {
        [@shape@]
    }
@end@
}

/// The number of elements of a shape.
pub fn count(shape: &[i64]) -> usize {
    shape.iter().map(|&extent| extent as usize).product()
}

/// What `Model::run` takes, each in C's order.
pub struct Inputs<'a> {
@each inputs@
    /// @about@
@each read@
    pub @tensor@: &'a [@type@],
@end@
@each written@
    pub @tensor@: &'a mut [@type@],
@end@
@end@
}

/// An output in C's order; it lies in memory of the model or of an input.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a, T, const RANK: usize> {
    pub data: &'a [T],
    pub shape: [i64; RANK],
}

/// What `Model::run` gives.
#[derive(Clone, Copy, Debug)]
pub struct Outputs<'a> {
@each outputs@
    /// @about@
    pub @tensor@: Tensor<'a, @type@, @rank@>,
@end@
}

/// Bytes at a multiple of 64, as the library wants its memory.
struct Memory {
    at: NonNull<u8>,
    layout: Layout,
}

impl Memory {
    fn new(size: usize) -> Result<Self, Error> {
        let layout = Layout::from_size_align(size.max(1), 64)
            .map_err(|_| Error::new(Code::Memory, format!("{size} bytes are too many")))?;
        // SAFETY: the layout has at least one byte.
        let at = unsafe { alloc_zeroed(layout) };
        match NonNull::new(at) {
            Some(at) => Ok(Memory { at, layout }),
            None => handle_alloc_error(layout),
        }
    }

    fn get(&self) -> *mut c_void {
        self.at.as_ptr().cast()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(self.at.as_ptr(), self.layout) }
    }
}

// SAFETY: nobody else has its bytes, and nothing writes those that are shared.
unsafe impl Send for Memory {}
unsafe impl Sync for Memory {}
@each weights@

/// The weights, which any number of models share.
#[derive(Clone)]
pub struct Weights(Arc<Memory>);

impl Weights {
    /// Of the file weights.bin.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let content = std::fs::read(path)
            .map_err(|error| Error::new(Code::Weights, format!("{}: {error}", path.display())))?;
        Self::copy(&content)
    }

    /// Of the content of weights.bin, such as that of `include_bytes!`.
    pub fn copy(content: &[u8]) -> Result<Self, Error> {
        // SAFETY: the table lives as long as the program.
        let size = unsafe { (*ffi::@prefix@_interface()).weights } as usize;
        if content.len() != size {
            let message = format!("the weights of @short@ have {size} bytes, not {}", content.len());
            return Err(Error::new(Code::Weights, message));
        }
        let memory = Memory::new(size)?;
        // SAFETY: both have that many bytes.
        unsafe { ptr::copy_nonoverlapping(content.as_ptr(), memory.at.as_ptr(), size) };
        Ok(Weights(Arc::new(memory)))
    }
}
@end@

/// A context of the model: bind, then run as often as you like. It computes in the thread that
/// calls.
pub struct Model {
    context: Memory,
    arena: Memory,
    dims: Option<Dims>,
@each weights@
    _weights: Weights,
@end@
}

impl Model {
@each weights@
    /// A context of its own over weights that others may share.
    pub fn new(weights: &Weights) -> Result<Self, Error> {
        let at = weights.0.get();
        Self::open(at, weights.clone())
    }

    fn open(at: *const c_void, weights: Weights) -> Result<Self, Error> {
@end@
@each embedded@
    /// A context of its own; the library holds the weights.
    pub fn new() -> Result<Self, Error> {
        let at = ptr::null();
@end@
        // SAFETY: it only gives a number.
        let context = Memory::new(unsafe { ffi::@prefix@_size() })?;
        let model = Model {
            context,
            arena: Memory::new(0)?,
            dims: None,
@each weights@
            _weights: weights,
@end@
        };
        // SAFETY: the context has the size and the alignment that the library wants, and the
        // weights live as long as the model.
        model.check(unsafe { ffi::@prefix@_open(model.context.get(), at, ptr::null()) })?;
        Ok(model)
    }

    /// Sets the dims.
    pub fn bind(&mut self, dims: Dims) -> Result<(), Error> {
        self.dims = None;
        let values: [i64; @dim_count@ + 1] = [
@each dims@
            dims.@dim@,
@end@
            0,
        ];
        // SAFETY: it reads as many numbers as there are dims.
        let need = unsafe { ffi::@prefix@_bind(self.context.get(), values.as_ptr()) };
        if need < 0 {
            self.check(-need as c_int)?;
        }
        if need as usize > self.arena.layout.size() {
            self.arena = Memory::new(need as usize)?;
        }
        // SAFETY: the arena has the bytes that bind wants, and lives until it is set anew.
        self.check(unsafe { ffi::@prefix@_arena(self.context.get(), self.arena.get()) })?;
        self.dims = Some(dims);
        Ok(())
    }

    /// Computes the outputs.
    #[allow(unused_variables)]
    pub fn run<'a>(&'a mut self, inputs: Inputs<'a>) -> Result<Outputs<'a>, Error> {
        let Some(dims) = self.dims else {
            return Err(Error::new(Code::Usage, "bind the dims before a run".into()));
        };
        let given: [*const c_void; @input_count@ + 1] = [
@each inputs@
@each read@
            pointer("@tensor@", inputs.@tensor@, count(&dims.shape_of_@tensor@()))?,
@end@
@each written@
            written("@tensor@", inputs.@tensor@, count(&dims.shape_of_@tensor@()))?,
@end@
@end@
            ptr::null(),
        ];
        // SAFETY: every input has the elements that the dims say.
        self.check(unsafe {
            ffi::@prefix@_run(self.context.get(), given.as_ptr(), ptr::null())
        })?;
        Ok(Outputs {
@each outputs@
            @tensor@: self.output(@index@),
@end@
        })
    }

    fn check(&self, status: c_int) -> Result<(), Error> {
        let code = match status {
            0 => return Ok(()),
            1 => Code::Dim,
            2 => Code::Check,
            3 => Code::Memory,
            4 => Code::Kernel,
            _ => Code::Usage,
        };
        // SAFETY: the library gives a text that ends in 0.
        let text = unsafe { CStr::from_ptr(ffi::@prefix@_failure(self.context.get())) };
        Err(Error::new(code, text.to_string_lossy().into_owned()))
    }

    fn output<T, const RANK: usize>(&self, index: c_int) -> Tensor<'_, T, RANK> {
        let mut shape = [0; RANK];
        // SAFETY: after a run the output lies where the library says, with the shape that it says,
        // and stays there until the next bind or run, both of which take the model mutably.
        unsafe {
            let at = ffi::@prefix@_shape(self.context.get(), index);
            ptr::copy_nonoverlapping(at, shape.as_mut_ptr(), RANK);
            let data = match count(&shape) {
                0 => &[],
                all => {
                    let at = ffi::@prefix@_output(self.context.get(), index);
                    slice::from_raw_parts(at.cast(), all)
                }
            };
            Tensor { data, shape }
        }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: the context was opened, or failed to, and is closed once.
        unsafe { ffi::@prefix@_close(self.context.get()) }
    }
}

#[allow(dead_code)]
fn pointer<T>(name: &str, input: &[T], wanted: usize) -> Result<*const c_void, Error> {
    let size = input.len();
    if size == wanted {
        return Ok(input.as_ptr().cast());
    }
    let message = format!("{name} has {size} elements, it must have {wanted}");
    Err(Error::new(Code::Usage, message))
}

#[allow(dead_code)]
fn written<T>(name: &str, input: &mut [T], wanted: usize) -> Result<*const c_void, Error> {
    pointer(name, input, wanted)?;
    Ok(input.as_mut_ptr() as *const c_void)
}
