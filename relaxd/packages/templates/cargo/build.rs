//! Tells Cargo where the library lies.
use std::path::{Path, PathBuf};
use std::{env, fs};

const FILE: &str = "@link_file@";

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by Cargo"));
    println!("cargo:rerun-if-changed=lib/{FILE}");
@each shared@
    // Below the target folder, so that `cargo run` and `cargo test` of any crate find it; a program
    // that is installed has the library beside it, or where its own rpath says.
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by Cargo"));
    let copy: &Path = &out.join(FILE);
    fs::copy(root.join("lib").join(FILE), copy).expect("the library is in lib");
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=dylib=@prefix@");
@end@
@each archived@
    println!("cargo:rustc-link-search=native={}", root.join("lib").display());
    println!("cargo:rustc-link-lib=static=@prefix@");
    println!("cargo:rustc-link-lib=dylib=m");
@end@
}
