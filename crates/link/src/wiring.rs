//! Which line lies between which hosts, and which thread serves it.

use std::collections::HashMap;

use wirecost_model::link::{Conditions, LinkSpec, Topology};

/// Lines of a lab and the hosts that they join.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wiring {
    pub(crate) lines: Vec<(String, Conditions)>,
    /// The line from one host to another.
    pub(crate) between: HashMap<(usize, usize), usize>,
    /// Hosts whose frames one thread reads. No two of them share a line.
    pub(crate) inputs: Vec<Vec<usize>>,
}

impl Wiring {
    /// Host 0 is the first. Forward is from it to others.
    pub(crate) fn new(topology: Topology, hosts: usize, link: &LinkSpec) -> Self {
        match topology {
            Topology::Pair | Topology::Dumbbell => Self::dumbbell(hosts, link),
            Topology::Star => Self::star(hosts, link),
        }
    }

    /// The first half of the hosts on the left of a shared link, and the others on its right. Hosts of one
    /// side reach each other without it.
    fn dumbbell(hosts: usize, link: &LinkSpec) -> Self {
        let left = Topology::left(hosts);
        let is_left = |host: usize| host < left;
        let local = Conditions::default();
        let lines = [
            ("forward", link.forward.clone()),
            ("back", link.back.clone()),
            ("left", local.clone()),
            ("right", local),
        ];
        let line = |from, to| match (is_left(from), is_left(to)) {
            (true, false) => 0,
            (false, true) => 1,
            (true, true) => 2,
            (false, false) => 3,
        };
        let between = pairs(hosts).map(|(from, to)| ((from, to), line(from, to))).collect();
        Self {
            lines: lines.map(|(name, line)| (name.to_owned(), line)).to_vec(),
            between,
            inputs: vec![(0..left).collect(), (left..hosts).collect()],
        }
    }

    /// Every host has a link to the middle, whose queue is there.
    fn star(hosts: usize, link: &LinkSpec) -> Self {
        let line = |to: usize| {
            let conditions = if to == 0 { &link.back } else { &link.forward };
            (format!("to h{}", to + 1), conditions.clone())
        };
        let between = pairs(hosts).map(|(from, to)| ((from, to), to)).collect();
        Self { lines: (0..hosts).map(line).collect(), between, inputs: vec![(0..hosts).collect()] }
    }

    /// Has one thread serve all.
    pub(crate) fn on_one_thread(mut self) -> Self {
        self.inputs = vec![self.inputs.concat()];
        self
    }
}

fn pairs(hosts: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..hosts)
        .flat_map(move |from| (0..hosts).filter(move |to| *to != from).map(move |to| (from, to)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn link() -> LinkSpec {
        let of = |loss| Conditions { loss, ..Conditions::default() };
        LinkSpec { forward: of(0.1), back: of(0.2), ..LinkSpec::default() }
    }

    /// The loss between two hosts, by number from 1.
    fn loss(wiring: &Wiring, from: usize, to: usize) -> f64 {
        wiring.lines[wiring.between[&(from - 1, to - 1)]].1.loss
    }

    #[test]
    fn hosts_of_a_dumbbell_share_the_link_in_the_middle() {
        let wiring = Wiring::new(Topology::Dumbbell, 4, &link());
        assert_eq!(
            [(1, 3), (2, 4), (3, 1), (1, 2), (4, 3)].map(|(a, b)| loss(&wiring, a, b)),
            [0.1, 0.1, 0.2, 0.0, 0.0]
        );
        assert_eq!(wiring.between[&(0, 2)], wiring.between[&(1, 3)]);
        assert_eq!(wiring.inputs, [[0, 1], [2, 3]]);
        // Of three hosts, the first reaches both others by the link.
        let wiring = Wiring::new(Topology::Dumbbell, 3, &link());
        assert_eq!([(1, 2), (1, 3), (2, 3)].map(|(a, b)| loss(&wiring, a, b)), [0.1, 0.1, 0.0]);
    }

    #[test]
    fn hosts_of_a_star_have_links_of_their_own() {
        let wiring = Wiring::new(Topology::Star, 3, &link());
        assert_eq!(
            [(1, 2), (1, 3), (2, 3), (3, 1)].map(|(a, b)| loss(&wiring, a, b)),
            [0.1, 0.1, 0.1, 0.2]
        );
        assert_ne!(wiring.between[&(0, 1)], wiring.between[&(0, 2)]);
    }

    #[test]
    fn threads_share_no_line() {
        for (topology, hosts) in [(Topology::Pair, 2), (Topology::Dumbbell, 5), (Topology::Star, 5)]
        {
            let wiring = Wiring::new(topology, hosts, &link());
            let of = |inputs: &Vec<usize>| -> HashSet<usize> {
                wiring
                    .between
                    .iter()
                    .filter(|((from, _), _)| inputs.contains(from))
                    .map(|(_, line)| *line)
                    .collect()
            };
            let lines: Vec<_> = wiring.inputs.iter().map(of).collect();
            assert!(lines.windows(2).all(|pair| pair[0].is_disjoint(&pair[1])));
        }
    }
}
