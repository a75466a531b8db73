//! Forces of a layout: all points push each other, exactly or by clusters, and edges pull.
//!
//! A push is `(x − y)/d²` with the distance `d`, a pull `w·d·(x − y)`. Points that are nearer than 0.01 lie on top of
//! each other: they count as if they were so far apart.
//! Source: Fruchterman and Reingold, "Graph drawing by force-directed placement", Software 21(11), 1991.

mod attraction;
mod barnes_hut;
mod repulsion;
mod strip;
mod tree;

pub use attraction::{Attraction, attraction};
pub use barnes_hut::barnes_hut;
pub use repulsion::{BlockShare, repulsion, wholes_per_one};

/// Points that are nearer than this lie on top of each other.
const LEAST_DISTANCE: f32 = 0.01;
