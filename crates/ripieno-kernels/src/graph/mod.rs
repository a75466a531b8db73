//! Graphs: edges from text, a rank's edges as a sparse matrix, its product with a vector, steps of PageRank and of a
//! breadth-first search, and triangles.
//!
//! [`parse_edges`] reads lines. [`LocalGraph::new`] numbers the ends of a rank's edges and sorts the edges by row
//! (their target). [`Csr::product`] gathers `x` over the sources of each row, and [`pagerank_step`] computes the next
//! ranks from the reduced sums. [`Csr::min_sources`] finds the rows next to a frontier, and [`count_triangles`]
//! counts the triangles of each vertex. Results do not depend on the number of threads.

mod csr;
mod frontier;
mod numbering;
mod pagerank;
mod parse;
mod product;
mod triangles;

pub use csr::{Csr, LocalGraph, TooManyEdges};
pub use frontier::NO_SOURCE;
pub use pagerank::{PageRankStep, PageRankTotals, pagerank_step};
pub use parse::{EdgeColumns, LARGEST_ID, MalformedLine, Reason, ThirdField, parse_edges};
pub use product::{Fold, Max, Min, Or, Sum};
pub use triangles::{Counted, TargetLists, count_triangles};
