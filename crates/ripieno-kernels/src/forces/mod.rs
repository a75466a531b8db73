//! Forces of a graph layout: repulsion between all points, exact or approximated by clusters, and attraction along
//! edges.
//!
//! The repulsion is `(x − y)/d²` for the distance `d`, and the attraction `w·d·(x − y)`. Points closer than 0.01 count
//! as if their distance were 0.01.
//! Source: Fruchterman and Reingold, "Graph drawing by force-directed placement", Software 21(11), 1991.

mod attraction;
mod barnes_hut;
mod repulsion;
mod strip;
mod tree;

pub use attraction::{Attraction, attraction};
pub use barnes_hut::barnes_hut;
pub use repulsion::{BlockShare, fixed_point_scale, repulsion};

/// Lower bound on the distance of two points.
const MIN_DISTANCE: f32 = 0.01;
