//! The cores that processes may use, and whether each process can have its own.

use rustix::thread::{CpuSet, sched_getaffinity};

/// The cores that a process may use: bit `c % 64` of word `c / 64` stands for core `c`.
pub type CoreMask = Vec<u64>;

/// Return the cores that the calling thread may use; none if the kernel does not report them.
pub fn usable_cores() -> CoreMask {
    let Ok(cores) = sched_getaffinity(None) else { return CoreMask::new() };
    let mut mask = CoreMask::new();
    for core in (0..CpuSet::MAX_CPU).filter(|&core| cores.is_set(core)) {
        mask.resize(core / 64 + 1, 0);
        mask[core / 64] |= 1 << (core % 64);
    }
    mask
}

/// Return the number of cores that this process may use, under its affinity and container quota.
pub fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}

/// Return whether a container quota allows fewer cores than the affinity.
pub fn has_core_quota() -> bool {
    core_count() < cores_of(&usable_cores()).count()
}

/// Return whether each process can have a core of its own. `masks` has the usable cores of each process.
///
/// The assignment is a matching of processes and cores, found by augmenting paths. Source: Kuhn, "The Hungarian method
/// for the assignment problem", Naval Research Logistics Quarterly 1955.
pub fn has_core_each(masks: &[&CoreMask]) -> bool {
    let mut owners = Vec::new();
    (0..masks.len()).all(|process| assign(process, masks, &mut owners, &mut CoreMask::new()))
}

/// Assign a core to `process`, moving the owners of cores if needed. Return whether it got one. `tried` collects
/// the cores on this path.
fn assign(process: usize, masks: &[&CoreMask], owners: &mut Vec<Option<usize>>, tried: &mut CoreMask) -> bool {
    let cores = || cores_of(masks[process]);
    let free = cores().find(|&core| owners.get(core).copied().flatten().is_none());
    let found = free.or_else(|| {
        cores().find(|&core| {
            let is_new = !cores_of(tried).any(|other| other == core);
            tried.resize(tried.len().max(core / 64 + 1), 0);
            tried[core / 64] |= 1 << (core % 64);
            is_new && owners[core].is_some_and(|owner| assign(owner, masks, owners, tried))
        })
    });
    let Some(core) = found else { return false };
    owners.resize(owners.len().max(core + 1), None);
    owners[core] = Some(process);
    true
}

fn cores_of(mask: &CoreMask) -> impl Iterator<Item = usize> {
    (0..64 * mask.len()).filter(|core| mask[core / 64] >> (core % 64) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_affinity_has_at_least_the_counted_cores() {
        assert!(cores_of(&usable_cores()).count() >= core_count());
    }

    #[test]
    fn processes_have_their_own_cores_if_they_can_be_matched() {
        let cases: [(&[&[u64]], bool); 7] = [
            (&[&[1], &[2]], true),
            (&[&[1], &[1]], false),
            (&[&[3], &[3]], true),
            (&[&[3], &[3], &[3]], false),
            (&[&[7], &[3], &[1]], true),
            (&[&[1], &[7], &[1]], false),
            (&[&[0, 1], &[1], &[1, 1]], false),
        ];
        for (masks, expected) in cases {
            let masks: Vec<CoreMask> = masks.iter().map(|mask| mask.to_vec()).collect();
            assert_eq!(has_core_each(&masks.iter().collect::<Vec<_>>()), expected, "{masks:?}");
        }
    }
}
