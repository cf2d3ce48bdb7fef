//! Compiles the BPF programs.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    wirecost_bpf_build::compile(&[])
}
