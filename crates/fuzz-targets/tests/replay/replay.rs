//! Runs a target as libFuzzer does, but with a known list of inputs: the seeds, what libFuzzer has found on this
//! machine, and mutations of the seeds.

use std::any::Any;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use fastrand::Rng;

use crate::mutation::{Material, words_of};
use crate::seed::seed;

/// Of each target.
const MUTATIONS: u64 = 2000;

pub fn replay(target: &str, run: fn(&[u8])) {
    let fuzz = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz"));
    let fuzz = fuzz.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", fuzz.display()));
    let running = Running::new(fuzz.join("artifacts").join(target), target, run);
    let seeds = files(&fuzz.join("seeds").join(target));
    assert!(!seeds.is_empty(), "fuzz/seeds/{target} has no file");
    let corpus = files(&fuzz.join("corpus").join(target));
    for path in seeds.iter().chain(&corpus) {
        running.check(&path.display().to_string(), &read(path));
    }
    let dictionary = fuzz.join(format!("{target}.dict"));
    let words = if dictionary.exists() {
        words_of(&String::from_utf8_lossy(&read(&dictionary)))
            .unwrap_or_else(|line| panic!("{}: {line}", dictionary.display()))
    } else {
        Vec::new()
    };
    let material = Material { seeds: seeds.iter().map(|path| read(path)).collect(), words };
    let seed = seed();
    let mut random = Rng::with_seed(seed);
    for number in 0..MUTATIONS {
        // Each draws from a generator of its own, so that no other changes if one draws more.
        let input = material.mutation(&mut random.fork());
        running.check(&format!("mutation {number} of WIRECOST_TEST_SEED={seed}"), &input);
    }
    running.finish();
    let (seeds, corpus) = (seeds.len(), corpus.len());
    println!("{target}: {seeds} seeds, {corpus} inputs of the corpus, {MUTATIONS} mutations");
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// In the order of their names. There need not be such a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The input that is run is in a file meanwhile, as an overflow of the stack leaves no time to write it.
struct Running<'a> {
    file: PathBuf,
    target: &'a str,
    run: fn(&[u8]),
}

impl<'a> Running<'a> {
    fn new(directory: PathBuf, target: &'a str, run: fn(&[u8])) -> Self {
        let created = fs::create_dir_all(&directory);
        created.unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        Self { file: directory.join("replayed"), target, run }
    }

    fn check(&self, name: &str, input: &[u8]) {
        let Self { file, target, run } = self;
        fs::write(file, input).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(input))) {
            panic!(
                "{target} fails for {name}: {}\n{}\nThe input is in {}. Once it is in fuzz/seeds/{target}, \
                 it is always run.",
                text_of(&*panic),
                shown(input),
                file.display(),
            );
        }
    }

    /// Removes the file, as no input has failed.
    fn finish(self) {
        fs::remove_file(&self.file).unwrap();
        // libFuzzer may have left files there.
        for directory in self.file.ancestors().skip(1).take(2) {
            let _ = fs::remove_dir(directory);
        }
    }
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked")
}

fn shown(input: &[u8]) -> String {
    const MOST: usize = 1000;
    let beginning = &input[..input.len().min(MOST)];
    let rest = if input.len() > MOST { "..." } else { "" };
    format!("{} bytes: {}{rest}", input.len(), beginning.escape_ascii())
}

#[test]
#[should_panic(expected = "order fails for a test: three\n3 bytes: a\\x00b\nThe input is in ")]
fn a_failure_names_its_input_and_its_reason() {
    let directory = tempfile::tempdir().unwrap();
    let fails_at_three = |input: &[u8]| assert!(input.len() != 3, "three");
    let running = Running::new(directory.path().join("order"), "order", fails_at_three);
    running.check("another", b"ab");
    running.check("a test", b"a\0b");
}
