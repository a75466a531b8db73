//! Faults: hosts that are slow, hosts that die, links that are cut.

use ripieno_plan::next_random;

/// What goes wrong on a cluster. The same faults go wrong in every run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterFaults {
    /// How many times as long a node's ports take for everything.
    slow_nodes: Vec<(usize, f64)>,
    /// Nodes that die, and when.
    deaths: Vec<(usize, f64)>,
    /// Pairs of ranks whose link is cut, both ways, and when.
    cuts: Vec<([usize; 2], f64)>,
}

impl ClusterFaults {
    /// The ports of `node` take `factor` times as long.
    pub fn slow(mut self, node: usize, factor: f64) -> ClusterFaults {
        assert!(factor >= 1.0, "a slow node is no faster than others");
        self.slow_nodes.push((node, factor));
        self
    }

    /// `count` of `node_count` nodes, drawn by `seed`, take `factor` times as long.
    pub fn slow_some(self, node_count: usize, count: usize, factor: f64, seed: u64) -> ClusterFaults {
        let mut left: Vec<usize> = (0..node_count).collect();
        let mut state = seed;
        let mut drawn = || left.swap_remove((next_random(&mut state) % left.len() as u64) as usize);
        let nodes: Vec<usize> = (0..count.min(node_count)).map(|_| drawn()).collect();
        nodes.into_iter().fold(self, |faults, node| faults.slow(node, factor))
    }

    /// `node` dies at `at_s`: it sends and takes nothing any more.
    pub fn death(mut self, node: usize, at_s: f64) -> ClusterFaults {
        self.deaths.push((node, at_s));
        self
    }

    /// The link between two ranks is cut at `at_s`, both ways.
    pub fn cut(mut self, one: usize, other: usize, at_s: f64) -> ClusterFaults {
        self.cuts.push(([one, other], at_s));
        self
    }

    /// How many times as long the ports of `node` take.
    pub(crate) fn slowness(&self, node: usize) -> f64 {
        self.slow_nodes.iter().filter(|(slow, _)| *slow == node).map(|(_, factor)| factor).product()
    }

    /// Nodes that die, and when.
    pub(crate) fn deaths(&self) -> &[(usize, f64)] {
        &self.deaths
    }

    /// Links that are cut, and when.
    pub(crate) fn cuts(&self) -> &[([usize; 2], f64)] {
        &self.cuts
    }
}
