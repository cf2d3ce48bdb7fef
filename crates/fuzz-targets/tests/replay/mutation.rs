//! Mutations of inputs, by the operators that fuzzers use:
//! <https://lcamtuf.blogspot.com/2014/08/binary-fuzzing-strategies-what-works.html>.

use std::ops::Range;

use fastrand::Rng;

/// No mutation is longer.
const LONGEST: usize = 64 << 10;

/// What numbers are written wrongly around.
const NUMBERS: [&str; 16] = [
    "0",
    "1",
    "-1",
    "0.1",
    "255",
    "256",
    "32768",
    "65536",
    "2147483647",
    "2147483648",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "1e-400",
];

/// What mutations are made from.
#[derive(Debug)]
pub struct Material {
    /// One at least.
    pub seeds: Vec<Vec<u8>>,
    pub words: Vec<Vec<u8>>,
}

impl Material {
    /// A seed after one operator, or more: each further one is half as likely.
    pub fn mutation(&self, random: &mut Rng) -> Vec<u8> {
        let mut input = self.seed(random).to_vec();
        loop {
            self.operate(&mut input, random);
            input.truncate(LONGEST);
            if random.bool() {
                return input;
            }
        }
    }

    fn seed(&self, random: &mut Rng) -> &[u8] {
        &self.seeds[random.usize(..self.seeds.len())]
    }

    fn operate(&self, input: &mut Vec<u8>, random: &mut Rng) {
        match random.u32(..14) {
            0 => flip(input, random),
            1 => {
                if let Some(at) = place(input, random) {
                    input[at] = random.u8(..);
                }
            }
            2 => {
                let bytes: Vec<u8> = (0..random.usize(1..=8)).map(|_| random.u8(..)).collect();
                insert(input, &bytes, random);
            }
            3 => drop(input.drain(range(input.len(), 32, random))),
            4 => drop(input.drain(range(input.len(), usize::MAX, random))),
            5 => input.truncate(random.usize(..=input.len())),
            6 => {
                let copied = input[range(input.len(), 256, random)].to_vec();
                insert(input, &copied, random);
            }
            7 => repeat(input, random),
            8 => {
                let other = self.seed(random);
                let from = random.usize(..=other.len());
                input.truncate(random.usize(..=input.len()));
                input.extend_from_slice(&other[from..]);
            }
            9 => {
                let other = self.seed(random);
                let copied = &other[range(other.len(), 256, random)];
                insert(input, copied, random);
            }
            10 => set_integer(input, random),
            11 => {
                let word = self.word(random);
                insert(input, &word, random);
            }
            12 => {
                let word = self.word(random);
                replace_word(input, &word, random);
            }
            _ => {
                let number = NUMBERS[random.usize(..NUMBERS.len())];
                replace_word(input, number.as_bytes(), random);
            }
        }
    }

    /// Of the dictionary, or of a seed.
    fn word(&self, random: &mut Rng) -> Vec<u8> {
        if !self.words.is_empty() && random.bool() {
            return self.words[random.usize(..self.words.len())].clone();
        }
        let seed = self.seed(random);
        seed[word_at(seed, random)].to_vec()
    }
}

fn place(input: &[u8], random: &mut Rng) -> Option<usize> {
    (!input.is_empty()).then(|| random.usize(..input.len()))
}

/// Of a sequence of this length, and no longer than `most`.
fn range(length: usize, most: usize, random: &mut Rng) -> Range<usize> {
    let begin = random.usize(..=length);
    begin..begin + random.usize(..=(length - begin).min(most))
}

fn insert(input: &mut Vec<u8>, bytes: &[u8], random: &mut Rng) {
    let at = random.usize(..=input.len());
    input.splice(at..at, bytes.iter().copied());
}

fn flip(input: &mut [u8], random: &mut Rng) {
    if let Some(at) = place(input, random) {
        input[at] ^= 1 << random.u32(..8);
    }
}

/// Once, or thousands of times: brackets that are nested too deep.
fn repeat(input: &mut Vec<u8>, random: &mut Rng) {
    let repeated = range(input.len(), 32, random);
    let most = (LONGEST - input.len()) / repeated.len().max(1);
    let times = if random.bool() { random.usize(..=most.min(8)) } else { random.usize(..=most) };
    let bytes = input[repeated.clone()].repeat(times);
    input.splice(repeated.end..repeated.end, bytes);
}

/// One of 1, 2, 4 or 8 bytes, in either order: 0, -1, the limits of types, the length, and those beside them.
fn set_integer(input: &mut [u8], random: &mut Rng) {
    let width = 1 << random.u32(..4);
    if input.len() < width {
        return;
    }
    let near = [0, input.len() as u64, 1 << 7, 1 << 15, 1 << 16, 1 << 31, 1 << 32, 1 << 63];
    let number = near[random.usize(..near.len())].wrapping_add(random.u64(..3)).wrapping_sub(1);
    let mut bytes = number.to_le_bytes();
    let bytes = &mut bytes[..width];
    if random.bool() {
        bytes.reverse();
    }
    let at = random.usize(..=input.len() - width);
    input[at..at + width].copy_from_slice(bytes);
}

/// Letters and digits around a place.
fn word_at(input: &[u8], random: &mut Rng) -> Range<usize> {
    let Some(at) = place(input, random) else { return 0..0 };
    let is_of_word = |&&byte: &&u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    // The place may be between two words.
    let after = input[at..].iter().take_while(is_of_word).count();
    let before = input[..at].iter().rev().take_while(is_of_word).count();
    at - before..at + after
}

fn replace_word(input: &mut Vec<u8>, word: &[u8], random: &mut Rng) {
    let replaced = word_at(input, random);
    input.splice(replaced, word.iter().copied());
}

/// The words of a dictionary of libFuzzer, or a line that is none:
/// <https://llvm.org/docs/LibFuzzer.html#dictionaries>.
pub fn words_of(dictionary: &str) -> Result<Vec<Vec<u8>>, &str> {
    let lines = dictionary.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| word_of(line).ok_or(line)).collect()
}

/// `"word"`, or `name="word"`, with escapes for quotes, backslashes and bytes.
fn word_of(line: &str) -> Option<Vec<u8>> {
    let (_, rest) = line.split_once('"')?;
    let mut rest = rest.strip_suffix('"')?.bytes();
    let mut word = Vec::new();
    while let Some(byte) = rest.next() {
        word.push(match byte {
            b'"' => return None,
            b'\\' => match rest.next()? {
                escaped @ (b'"' | b'\\') => escaped,
                b'x' => {
                    let digits = [rest.next()?, rest.next()?];
                    u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
                }
                _ => return None,
            },
            byte => byte,
        });
    }
    Some(word)
}

#[test]
fn words_of_a_dictionary_are_read_as_libfuzzer_reads_them() {
    let text = "# Words\n\n\"a\\\"b\"\nname=\"c\\\\\\x0aD\"\n  \"<?\"  \n";
    assert_eq!(words_of(text), Ok(vec![b"a\"b".to_vec(), b"c\\\nD".to_vec(), b"<?".to_vec()]));
    for wrong in ["word", "\"a", "\"a\"b\"", "\"\\n\"", "\"\\x4\"", "\"\\"] {
        assert_eq!(words_of(wrong), Err(wrong));
    }
}

#[test]
fn mutations_are_bounded_different_and_the_same_for_the_same_seed() {
    let material = Material {
        seeds: vec![b"size = 4096\n".to_vec(), vec![7; LONGEST], Vec::new()],
        words: vec![b"[[group]]".to_vec()],
    };
    let mutation = |seed| material.mutation(&mut Rng::with_seed(seed));
    let mut different = std::collections::BTreeSet::new();
    for seed in 0..3000 {
        let input = mutation(seed);
        assert!(input.len() <= LONGEST, "seed {seed}: {}", input.len());
        assert_eq!(input, mutation(seed), "seed {seed}");
        different.insert(input);
    }
    // An operator may leave the empty seed as it is. Of the others most mutations are new.
    assert!(different.len() > 1500, "{}", different.len());
    assert!(different.iter().any(|input| input.ends_with(b"[[group]]")));
    assert!(different.contains(&b"size = 65536\n"[..]));
}
