//! The order of a transaction's steps where it is not simply their own: loops, and mixes of which
//! one choice is drawn. Both ends of a connection draw alike, from the seed and their place alone.

use wirecost_model::profile::Part;
use wirecost_profile::language::DEEPEST_LOOP;

use crate::draw;

/// Where a strand is on its way through a transaction.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cursor {
    next: u32,
    /// Times that each of the loops around this place has been passed, the outermost first.
    rounds: [u32; DEEPEST_LOOP],
    /// A number for the rounds of all loops around the step, 0 where there are none.
    pub pass: u64,
}

/// Where the steps of one transaction are, in a form that needs no stack to follow.
#[derive(Debug, Default)]
pub struct StepSequence {
    acts: Vec<Act>,
    mixes: Vec<Mix>,
    /// By step: how often it is executed in one transaction, at most.
    times: Vec<u64>,
}

#[derive(Debug, Clone, Copy)]
enum Act {
    Step {
        step: u32,
        depth: u8,
    },
    /// A loop of this depth begins.
    Enter(u8),
    /// And begins again, unless that was often enough.
    Again {
        depth: u8,
        times: u32,
        to: u32,
    },
    /// Goes where one of the choices begins.
    Choose {
        mix: u32,
        depth: u8,
    },
    Jump(u32),
}

#[derive(Debug)]
struct Mix {
    key: u64,
    /// The part of 2^64 that is drawn for each choice and those before it, and where it begins.
    choices: Box<[(u64, u32)]>,
}

/// Which steps may be the first, and whether there may be none.
#[derive(Debug, Default)]
pub struct FirstSteps {
    pub steps: Vec<u32>,
    pub none: bool,
}

impl StepSequence {
    /// The way that `parts` describe, or none where they say nothing. `flowop_of` has the index of
    /// the flowop of each step; flowops without a step here are passed over.
    ///
    /// # Errors
    /// Loops that are nested too deep.
    pub fn new(parts: &[Part], flowop_of: &[u32], key: u64) -> Result<Option<Self>, String> {
        if parts.is_empty() {
            return Ok(None);
        }
        if nesting(parts) > DEEPEST_LOOP {
            return Err(format!("loops are nested deeper than {DEEPEST_LOOP}"));
        }
        let mut route = StepSequence { times: vec![0; flowop_of.len()], ..StepSequence::default() };
        let mut builder = Builder { route: &mut route, flowop_of, key, mixes: 0 };
        builder.parts(parts, 0, 1);
        Ok(Some(route))
    }

    /// Whether two transactions may have different steps.
    pub fn is_mixed(&self) -> bool {
        !self.mixes.is_empty()
    }

    /// How often a step is executed in one transaction, at most.
    pub fn times(&self, step: usize) -> u64 {
        self.times.get(step).copied().unwrap_or(0)
    }

    /// The next step of this transaction; `u32::MAX` when there is none.
    #[inline]
    pub fn next(&self, place: &mut Cursor, strand: u32, iteration: u64) -> u32 {
        while let Some(act) = self.acts.get(place.next as usize) {
            place.next += 1;
            match *act {
                Act::Step { step, depth } => {
                    place.pass = place.passes(depth);
                    return step;
                }
                Act::Enter(depth) => place.rounds[depth as usize] = 0,
                Act::Again { depth, times, to } => {
                    let rounds = &mut place.rounds[depth as usize];
                    *rounds += 1;
                    if *rounds < times {
                        place.next = to;
                    }
                }
                Act::Choose { mix, depth } => {
                    let mix = &self.mixes[mix as usize];
                    let drawn = draw::mix(draw::key(&[
                        mix.key,
                        u64::from(strand),
                        iteration,
                        place.passes(depth),
                    ]));
                    let chosen = mix.choices.iter().find(|(below, _)| drawn <= *below);
                    place.next = chosen.map_or(u32::MAX, |(_, to)| *to);
                }
                Act::Jump(to) => place.next = to,
            }
        }
        u32::MAX
    }
}

impl Cursor {
    #[inline]
    fn passes(&self, depth: u8) -> u64 {
        let rounds = &self.rounds[..usize::from(depth).min(DEEPEST_LOOP)];
        rounds.iter().fold(0, |pass, &round| draw::mix(pass ^ u64::from(round)))
    }
}

struct Builder<'a> {
    route: &'a mut StepSequence,
    flowop_of: &'a [u32],
    key: u64,
    /// Mixes so far, also those that have no step here: they are numbered alike on all hosts.
    mixes: u64,
}

impl Builder<'_> {
    fn here(&self) -> u32 {
        self.route.acts.len() as u32
    }

    /// Returns whether any step is in them.
    fn parts(&mut self, parts: &[Part], depth: u8, times: u64) -> bool {
        let mut any = false;
        for part in parts {
            any |= match part {
                Part::Flowop(flowop) => self.flowop(*flowop, depth, times),
                Part::Loop { times: rounds, parts } => self.repeat(*rounds, parts, depth, times),
                Part::Mix(choices) => {
                    let choices: Vec<(u32, &[Part])> =
                        choices.iter().map(|c| (c.weight, c.parts.as_slice())).collect();
                    self.mix(&choices, depth, times)
                }
            };
        }
        any
    }

    fn flowop(&mut self, flowop: u32, depth: u8, times: u64) -> bool {
        let mut any = false;
        for (step, _) in self.flowop_of.iter().enumerate().filter(|(_, f)| **f == flowop) {
            self.route.acts.push(Act::Step { step: step as u32, depth });
            self.route.times[step] = self.route.times[step].saturating_add(times);
            any = true;
        }
        any
    }

    fn repeat(&mut self, rounds: u32, parts: &[Part], depth: u8, times: u64) -> bool {
        let begin = self.route.acts.len();
        self.route.acts.push(Act::Enter(depth));
        let to = self.here();
        let any = self.parts(parts, depth + 1, times.saturating_mul(u64::from(rounds)));
        if any {
            self.route.acts.push(Act::Again { depth, times: rounds, to });
        } else {
            self.route.acts.truncate(begin);
        }
        any
    }

    fn mix(&mut self, choices: &[(u32, &[Part])], depth: u8, times: u64) -> bool {
        let key = draw::key(&[self.key, self.mixes]);
        self.mixes += 1;
        let begin = self.route.acts.len();
        let place = self.route.mixes.len();
        self.route.acts.push(Act::Choose { mix: place as u32, depth });
        self.route.mixes.push(Mix { key, choices: Box::default() });
        let total: u128 = choices.iter().map(|(weight, _)| u128::from(*weight)).sum();
        let (mut sum, mut any) = (0u128, false);
        let (mut begins, mut jumps) = (Vec::new(), Vec::new());
        for (weight, parts) in choices {
            sum += u128::from(*weight);
            begins.push((share_end(sum, total), self.here()));
            any |= self.parts(parts, depth, times);
            jumps.push(self.route.acts.len());
            self.route.acts.push(Act::Jump(0));
        }
        if !any {
            self.route.acts.truncate(begin);
            self.route.mixes.truncate(place);
            return false;
        }
        let end = self.here();
        for jump in jumps {
            self.route.acts[jump] = Act::Jump(end);
        }
        self.route.mixes[place].choices = begins.into();
        true
    }
}

/// How deep loops are nested.
pub fn nesting(parts: &[Part]) -> usize {
    let of_part = |part: &Part| match part {
        Part::Flowop(_) => 0,
        Part::Loop { parts, .. } => 1 + nesting(parts),
        Part::Mix(choices) => choices.iter().map(|c| nesting(&c.parts)).max().unwrap_or(0),
    };
    parts.iter().map(of_part).max().unwrap_or(0)
}

/// The largest of 2^64 numbers that belongs to the first `sum` of `total` equal parts of them.
pub fn share_end(sum: u128, total: u128) -> u64 {
    let end = (sum << 64).checked_div(total).unwrap_or(0);
    u64::try_from(end.saturating_sub(1)).unwrap_or(u64::MAX)
}

/// Which steps a host may begin a transaction with; those that `passed_over` do not count.
pub fn first_steps(
    parts: &[Part],
    flowop_of: &[u32],
    passed_over: &dyn Fn(u32) -> bool,
) -> FirstSteps {
    let mut first_steps = FirstSteps { steps: Vec::new(), none: true };
    for part in parts {
        let of_part = match part {
            Part::Flowop(flowop) => {
                let steps = flowop_of.iter().zip(0..).filter(|(f, _)| *f == flowop);
                let first = steps.map(|(_, step)| step).find(|step| !passed_over(*step));
                FirstSteps { none: first.is_none(), steps: first.into_iter().collect() }
            }
            Part::Loop { parts, .. } => self::first_steps(parts, flowop_of, passed_over),
            Part::Mix(choices) => {
                let mut of_mix = FirstSteps::default();
                for choice in choices {
                    let of_choice = self::first_steps(&choice.parts, flowop_of, passed_over);
                    of_mix.steps.extend(of_choice.steps);
                    of_mix.none |= of_choice.none;
                }
                of_mix
            }
        };
        first_steps.steps.extend(of_part.steps);
        if !of_part.none {
            first_steps.none = false;
            break;
        }
    }
    first_steps
}

#[cfg(test)]
mod tests {
    use wirecost_model::profile::Choice;

    use super::*;

    fn steps(route: &StepSequence, strand: u32, iteration: u64) -> Vec<(u32, u64)> {
        let mut place = Cursor::default();
        let mut steps = Vec::new();
        loop {
            let step = route.next(&mut place, strand, iteration);
            if step == u32::MAX {
                return steps;
            }
            steps.push((step, place.pass));
        }
    }

    fn numbers(route: &StepSequence, iteration: u64) -> Vec<u32> {
        steps(route, 0, iteration).into_iter().map(|(step, _)| step).collect()
    }

    fn choice(weight: u32, flowops: &[u32]) -> Choice {
        Choice { weight, parts: flowops.iter().map(|f| Part::Flowop(*f)).collect() }
    }

    #[test]
    fn loops_are_nested() {
        let inner = Part::Loop { times: 3, parts: vec![Part::Flowop(1), Part::Flowop(2)] };
        let outer = Part::Loop { times: 2, parts: vec![Part::Flowop(0), inner, Part::Flowop(3)] };
        let route =
            StepSequence::new(&[outer, Part::Flowop(4)], &[0, 1, 2, 3, 4], 1).unwrap().unwrap();
        let once = [0, 1, 2, 1, 2, 1, 2, 3];
        assert_eq!(numbers(&route, 0), [once.as_slice(), &once, &[4]].concat());
        assert_eq!((0..5).map(|s| route.times(s)).collect::<Vec<_>>(), [2, 6, 6, 2, 1]);
        // Every execution of a step is another place for what is drawn there.
        let mut places = steps(&route, 0, 0);
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 17);
    }

    #[test]
    fn a_host_without_some_of_the_flowops_takes_the_same_way() {
        let mix = |a: &[u32], b: &[u32]| Part::Mix(vec![choice(3, a), choice(1, b)]);
        let parts = [Part::Loop {
            times: 5,
            parts: vec![Part::Loop { times: 4, parts: vec![mix(&[0], &[1])] }, mix(&[2], &[3])],
        }];
        let master = StepSequence::new(&parts, &[0, 1, 2, 3], 9).unwrap().unwrap();
        // This one has none of the inner loop, and one of the other choices.
        let peer = StepSequence::new(&parts, &[3], 9).unwrap().unwrap();
        for iteration in 0..50 {
            let on_master: Vec<_> =
                steps(&master, 7, iteration).into_iter().filter(|(s, _)| *s == 3).collect();
            let on_peer = steps(&peer, 7, iteration);
            let passes = |steps: &[(u32, u64)]| steps.iter().map(|s| s.1).collect::<Vec<_>>();
            assert_eq!(passes(&on_master), passes(&on_peer));
        }
    }

    #[test]
    fn choices_come_as_often_as_they_weigh() {
        let mix = Part::Mix(vec![choice(7, &[0]), choice(2, &[1]), choice(1, &[2])]);
        let route = StepSequence::new(&[mix], &[0, 1, 2], 4).unwrap().unwrap();
        let mut counts = [0u32; 3];
        for strand in 0..10 {
            for iteration in 0..10_000 {
                counts[steps(&route, strand, iteration)[0].0 as usize] += 1;
            }
        }
        let expected = [70_000.0, 20_000.0, 10_000.0];
        let chi: f64 =
            counts.iter().zip(expected).map(|(&n, e)| (f64::from(n) - e).powi(2) / e).sum();
        // 13.8 with 2 degrees of freedom is passed once in a thousand.
        assert!(chi < 13.8, "{chi}: {counts:?}");
        assert!(route.is_mixed());
    }

    #[test]
    fn what_has_no_step_here_is_left_out() {
        let looped = Part::Loop { times: u32::MAX, parts: vec![Part::Flowop(0)] };
        let mixed = Part::Mix(vec![choice(1, &[0]), choice(1, &[1])]);
        let route = StepSequence::new(&[looped, mixed, Part::Flowop(2)], &[2], 0).unwrap().unwrap();
        assert_eq!(numbers(&route, 0), [0]);
        assert!(!route.is_mixed());
    }

    #[test]
    fn the_first_step_may_be_one_of_several() {
        let mix = Part::Mix(vec![choice(1, &[0, 1]), choice(1, &[2])]);
        let all = first_steps(&[mix.clone(), Part::Flowop(3)], &[0, 1, 2, 3], &|_| false);
        assert_eq!((all.steps, all.none), (vec![0, 2], false));
        let some = first_steps(&[mix, Part::Flowop(3)], &[0, 1, 2, 3], &|step| step == 2);
        assert_eq!((some.steps, some.none), (vec![0, 3], false));
    }

    #[test]
    fn loops_are_not_nested_for_ever() {
        let deeper = |parts| vec![Part::Loop { times: 2, parts }];
        let deep = (0..DEEPEST_LOOP).fold(vec![Part::Flowop(0)], |parts, _| deeper(parts));
        assert_eq!(
            numbers(&StepSequence::new(&deep, &[0], 1).unwrap().unwrap(), 0).len(),
            1 << DEEPEST_LOOP
        );
        assert!(StepSequence::new(&deeper(deep), &[0], 1).is_err());
    }

    #[test]
    fn parts_fill_the_range() {
        assert_eq!(share_end(1, 1), u64::MAX);
        assert_eq!(share_end(1, 2), (1 << 63) - 1);
        assert_eq!(share_end(7, 12), ((7u128 << 64) / 12 - 1) as u64);
    }
}
