//! Faults of a cluster: slow nodes, node deaths and link cuts.

use ripieno_plan::next_random;

/// Faults of a cluster. Every run has the same faults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterFaults {
    /// Slow nodes, each with the slowdown factor of its ports.
    slow_nodes: Vec<(usize, f64)>,
    /// Nodes that die, each with its time.
    deaths: Vec<(usize, f64)>,
    /// Pairs of ranks with a link that is cut in both directions, each with its time.
    cuts: Vec<([usize; 2], f64)>,
}

impl ClusterFaults {
    /// Slow the ports of `node` down by `factor`.
    pub fn slow(mut self, node: usize, factor: f64) -> ClusterFaults {
        assert!(factor >= 1.0, "the slowdown factor is at least 1");
        self.slow_nodes.push((node, factor));
        self
    }

    /// Slow `count` of `node_count` nodes down by `factor`. The nodes are drawn with `seed`.
    pub fn slow_some(self, node_count: usize, count: usize, factor: f64, seed: u64) -> ClusterFaults {
        let mut candidates: Vec<usize> = (0..node_count).collect();
        let mut state = seed;
        let mut drawn = || candidates.swap_remove((next_random(&mut state) % candidates.len() as u64) as usize);
        let nodes: Vec<usize> = (0..count.min(node_count)).map(|_| drawn()).collect();
        nodes.into_iter().fold(self, |faults, node| faults.slow(node, factor))
    }

    /// Let `node` die at `at_s`: it sends and receives nothing afterwards.
    pub fn death(mut self, node: usize, at_s: f64) -> ClusterFaults {
        self.deaths.push((node, at_s));
        self
    }

    /// Cut the link between two ranks at `at_s` in both directions.
    pub fn cut(mut self, first: usize, second: usize, at_s: f64) -> ClusterFaults {
        self.cuts.push(([first, second], at_s));
        self
    }

    /// Return the slowdown factor of the ports of `node`.
    pub(crate) fn slowness(&self, node: usize) -> f64 {
        self.slow_nodes.iter().filter(|(slow, _)| *slow == node).map(|(_, factor)| factor).product()
    }

    /// Return the nodes that die, each with its time.
    pub(crate) fn deaths(&self) -> &[(usize, f64)] {
        &self.deaths
    }

    /// Return the links that are cut, each with its time.
    pub(crate) fn cuts(&self) -> &[([usize; 2], f64)] {
        &self.cuts
    }
}
