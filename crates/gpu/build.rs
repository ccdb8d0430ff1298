//! Embeds the archive of compiled kernels that `VECTILE_KERNELS` names, or none.

use std::env;
use std::fs;
use std::path::PathBuf;

const VARIABLE: &str = "VECTILE_KERNELS";

fn main() {
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    println!("cargo::rerun-if-changed=build.rs");
    if let Err(reason) = embed() {
        println!("cargo::error={reason}");
    }
}

fn embed() -> Result<(), String> {
    let out = env::var_os("OUT_DIR").ok_or("no OUT_DIR")?;
    let to = PathBuf::from(out).join("kernels.archive");
    let archive = match env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        Some(path) => {
            let path = PathBuf::from(path);
            let shown = path.display();
            if path.is_relative() {
                return Err(format!("{VARIABLE}: {shown} is not an absolute path"));
            }
            println!("cargo::rerun-if-changed={shown}");
            fs::read(&path).map_err(|error| format!("{VARIABLE}: {shown}: {error}"))?
        }
        None => vec![],
    };
    fs::write(&to, archive).map_err(|error| format!("{}: {error}", to.display()))
}
