//! What each strand of a worker has moved, over time, in memory that does not grow.

use wirecost_model::clock::Nanos;
use wirecost_model::measure::StrandSeries;

/// Most instants that are kept.
const INSTANTS: usize = 1024;

/// Bytes of all strands of a worker at instants. When its memory is full, every other instant is dropped and later
/// ones are taken half as often.
#[derive(Debug)]
pub(crate) struct Recorder {
    start: Nanos,
    interval: Nanos,
    /// The next instant.
    next: Nanos,
    strands: usize,
    times: Vec<Nanos>,
    /// Of all strands at the first instant, at the second, and so on.
    bytes: Vec<u64>,
}

impl Recorder {
    /// For this many strands from `start` to `end`; none where there are no strands to follow.
    pub(crate) fn new(strands: usize, start: Nanos, end: Nanos, interval: Nanos) -> Self {
        let interval = interval.max(1);
        let expected = usize::try_from(end.saturating_sub(start) / interval).unwrap_or(INSTANTS);
        // The last instant may come between two others.
        let instants = if strands == 0 { 0 } else { expected.saturating_add(2).clamp(4, INSTANTS) };
        Self {
            start,
            interval,
            next: if strands == 0 { Nanos::MAX } else { start.saturating_add(interval) },
            strands,
            times: Vec::with_capacity(instants),
            bytes: Vec::with_capacity(instants * strands),
        }
    }

    /// When it is due.
    pub(crate) fn next(&self) -> Nanos {
        self.next
    }

    /// Takes the bytes of all strands, in their order, if it is due.
    pub(crate) fn take_due(&mut self, now: Nanos, bytes: impl Iterator<Item = u64>) {
        if now < self.next {
            return;
        }
        self.take(now, bytes);
        let passed = now.saturating_sub(self.start) / self.interval + 1;
        self.next = self.start.saturating_add(passed.saturating_mul(self.interval));
    }

    /// Takes them for the last time.
    pub(crate) fn take_last(&mut self, now: Nanos, bytes: impl Iterator<Item = u64>) {
        if self.next != Nanos::MAX {
            self.take(now, bytes);
            self.next = Nanos::MAX;
        }
    }

    fn take(&mut self, now: Nanos, bytes: impl Iterator<Item = u64>) {
        self.times.push(now);
        self.bytes.extend(bytes.take(self.strands));
        self.bytes.resize(self.times.len() * self.strands, 0);
        // There is always room for the next, so that it is at an even place of the thinned series.
        if self.times.len() == self.times.capacity().min(INSTANTS) {
            self.thin();
        }
    }

    /// Keeps the second of each two instants, so that none follows too soon.
    fn thin(&mut self) {
        let kept = self.times.len() / 2;
        for to in 0..kept {
            let from = 2 * to + 1;
            self.times[to] = self.times[from];
            let row = from * self.strands..(from + 1) * self.strands;
            self.bytes.copy_within(row, to * self.strands);
        }
        self.times.truncate(kept);
        self.bytes.truncate(kept * self.strands);
        self.interval = self.interval.saturating_mul(2);
    }

    /// The series of the strands, by group and number in their order.
    pub(crate) fn finish(
        &self,
        strands: impl Iterator<Item = (u32, u32)>,
    ) -> impl Iterator<Item = StrandSeries> {
        strands.take(self.strands).enumerate().map(move |(place, (group, strand))| {
            let rows = self.bytes.chunks(self.strands.max(1));
            let bytes = self.times.iter().copied().zip(rows.map(|row| row[place]));
            StrandSeries { group, strand, bytes: bytes.collect() }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(recorder: &Recorder) -> Vec<StrandSeries> {
        recorder.finish((0..2).map(|strand| (7, strand))).collect()
    }

    #[test]
    fn each_instant_has_the_bytes_of_each_strand() {
        let mut recorder = Recorder::new(2, 1000, 1300, 100);
        for now in [1000, 1050, 1100, 1105, 1250, 1299] {
            recorder.take_due(now, [now, 2 * now].into_iter());
        }
        recorder.take_last(1310, [5000, 6000].into_iter());
        recorder.take_last(1400, [9000, 9000].into_iter());
        let bytes = |of: &StrandSeries| of.bytes.clone();
        let series = series(&recorder);
        assert_eq!((series[1].group, series[1].strand), (7, 1));
        assert_eq!(bytes(&series[0]), [(1100, 1100), (1250, 1250), (1310, 5000)]);
        assert_eq!(bytes(&series[1]), [(1100, 2200), (1250, 2500), (1310, 6000)]);
    }

    #[test]
    fn memory_does_not_grow_and_instants_stay_even() {
        let mut recorder = Recorder::new(2, 0, Nanos::MAX, 10);
        let capacity = recorder.bytes.capacity();
        for now in (0..1_000_000).step_by(10) {
            recorder.take_due(now, [now, now + 1].into_iter());
        }
        assert_eq!(recorder.bytes.capacity(), capacity);
        let series = series(&recorder);
        let times: Vec<Nanos> = series[1].bytes.iter().map(|(at, _)| *at).collect();
        assert!((INSTANTS / 2..=INSTANTS).contains(&times.len()), "{}", times.len());
        assert!(series[1].bytes.iter().all(|(at, bytes)| *bytes == at + 1));
        let gaps: Vec<Nanos> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.iter().all(|gap| *gap == gaps[0]), "{gaps:?}");
        assert_eq!(times[0], gaps[0]);
    }

    #[test]
    fn without_strands_nothing_is_due() {
        let mut recorder = Recorder::new(0, 0, 100, 10);
        assert_eq!(recorder.next(), Nanos::MAX);
        recorder.take_due(50, std::iter::empty());
        recorder.take_last(50, std::iter::empty());
        assert_eq!(series(&recorder), []);
    }
}
