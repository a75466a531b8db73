//! Step meter: bounds the steps of a simulation, and checks for interrupts.

/// Number of steps between two interrupt checks. A step takes up to 20 µs, where many flows share a wire.
const INTERRUPT_CHECK_STEP_COUNT: u64 = 1 << 8;

/// The reason why a simulation stops early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The caller interrupted it.
    Interrupted,
    /// It has taken the maximum number of steps.
    TooLong,
}

/// Counts the steps of a simulation.
pub(super) struct StepMeter<'a> {
    is_interrupted: &'a dyn Fn() -> bool,
    step_count_max: u64,
    step_count: u64,
    next_check: u64,
}

impl<'a> StepMeter<'a> {
    pub(super) fn new(step_count_max: u64, is_interrupted: &'a dyn Fn() -> bool) -> StepMeter<'a> {
        StepMeter { is_interrupted, step_count_max, step_count: 0, next_check: INTERRUPT_CHECK_STEP_COUNT }
    }

    /// Return the number of steps so far.
    pub(super) fn step_count(&self) -> u64 {
        self.step_count
    }

    /// Count steps. Fails if the simulation is interrupted or takes too many steps.
    pub(super) fn add(&mut self, step_count: usize) -> Result<(), Stop> {
        self.step_count += step_count as u64;
        if self.step_count < self.next_check {
            return Ok(());
        }
        self.next_check = self.step_count + INTERRUPT_CHECK_STEP_COUNT;
        match () {
            () if (self.is_interrupted)() => Err(Stop::Interrupted),
            () if self.step_count > self.step_count_max => Err(Stop::TooLong),
            () => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulation_stops_after_the_maximum_of_steps_or_when_it_is_interrupted() {
        let mut meter = StepMeter::new(1 << 20, &|| false);
        assert_eq!(meter.add(1 << 20), Ok(()));
        assert_eq!(meter.add(INTERRUPT_CHECK_STEP_COUNT as usize), Err(Stop::TooLong));
        let mut meter = StepMeter::new(1 << 20, &|| true);
        assert_eq!(meter.add(1), Ok(()));
        assert_eq!(meter.add(INTERRUPT_CHECK_STEP_COUNT as usize), Err(Stop::Interrupted));
    }
}
