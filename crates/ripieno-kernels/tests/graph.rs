//! Edges from text, their matrix and its products, and steps of PageRank and of a breadth-first search.

use ripieno_kernels::Threads;
use ripieno_kernels::graph::{
    EdgeColumns, Fold, LocalGraph, Max, Min, NO_SOURCE, Or, PageRankStep, Reason, Sum, TargetLists, ThirdField,
    count_triangles, pagerank_step, parse_edges,
};

fn edges(pairs: &[(i64, i64)], weights: &[f64], lone: &[i64]) -> EdgeColumns {
    EdgeColumns {
        sources: pairs.iter().map(|pair| pair.0).collect(),
        targets: pairs.iter().map(|pair| pair.1).collect(),
        weights: weights.to_vec(),
        lone: lone.to_vec(),
    }
}

#[test]
fn lines_of_every_form_are_read() {
    for (text, third, want) in [
        ("", ThirdField::Rejected, edges(&[], &[], &[])),
        ("# by SNAP\n%\n\n1\t2\n 3  4 \r\n5 6", ThirdField::Rejected, edges(&[(1, 2), (3, 4), (5, 6)], &[], &[])),
        ("7\t1,2, 3\n8\t\n9\t4, \n", ThirdField::Rejected, edges(&[(7, 1), (7, 2), (7, 3), (9, 4)], &[], &[8])),
        ("1 2 0.5\n2\t1\t-3e1\r\n", ThirdField::Weight, edges(&[(1, 2), (2, 1)], &[0.5, -30.0], &[])),
        ("1 2 0.5 1234567\n2 1 3 x\r\n", ThirdField::Weight, edges(&[(1, 2), (2, 1)], &[0.5, 3.0], &[])),
        ("1 2 {}\n2\t1\t{}\r\n", ThirdField::Rejected, edges(&[(1, 2), (2, 1)], &[], &[])),
        (
            "1 2 {'color': 'a b', 'weight': 0.5}\n2 1 {'weight': 3, 'x': 1}\n",
            ThirdField::Weight,
            edges(&[(1, 2), (2, 1)], &[0.5, 3.0], &[]),
        ),
        ("1 2 0.5 x\n2 1\n", ThirdField::Ignored, edges(&[(1, 2), (2, 1)], &[], &[])),
        ("1 2\r3 4\r# x\r\r5 6\r\n", ThirdField::Rejected, edges(&[(1, 2), (3, 4), (5, 6)], &[], &[])),
        ("1 2 0.5\r2 1 3 x\r", ThirdField::Weight, edges(&[(1, 2), (2, 1)], &[0.5, 3.0], &[])),
        ("4611686018427387903 0\n", ThirdField::Rejected, edges(&[(4611686018427387903, 0)], &[], &[])),
    ] {
        assert_eq!(parse_edges(text.as_bytes(), third), Ok(want), "{text:?}");
    }
}

#[test]
fn an_invalid_line_is_reported() {
    for (line, third, reason) in [
        ("1", ThirdField::Rejected, Reason::TooFewFields),
        ("1 \r", ThirdField::Rejected, Reason::TooFewFields),
        ("1 2 3", ThirdField::Rejected, Reason::ThirdField),
        ("a b", ThirdField::Rejected, Reason::NotAnId),
        ("1;2", ThirdField::Rejected, Reason::NotAnId),
        ("1 2x", ThirdField::Rejected, Reason::NotAnId),
        ("1 2.5", ThirdField::Rejected, Reason::NotAnId),
        ("1 2.5", ThirdField::Weight, Reason::NotAnId),
        ("1 2-5 7", ThirdField::Weight, Reason::NotAnId),
        ("-1 2", ThirdField::Rejected, Reason::NegativeId),
        ("1 -2", ThirdField::Rejected, Reason::NegativeId),
        ("1 2,-3", ThirdField::Rejected, Reason::NegativeId),
        ("4611686018427387904 1", ThirdField::Rejected, Reason::IdTooLarge),
        ("99999999999999999999999 1", ThirdField::Rejected, Reason::IdTooLarge),
        ("1 2", ThirdField::Weight, Reason::NotAWeight),
        ("1 2 nan", ThirdField::Weight, Reason::NotAWeight),
        ("1 2 {}", ThirdField::Weight, Reason::NotAWeight),
        ("1 2 {'weight': nan}", ThirdField::Weight, Reason::NotAWeight),
        ("1 2 {'weight': 3}", ThirdField::Rejected, Reason::ThirdField),
        ("1 2,3 4", ThirdField::Weight, Reason::NotAWeight),
    ] {
        let good = match third {
            ThirdField::Weight => "1 2 3\n",
            _ => "1 2\n",
        };
        let error = parse_edges(format!("{good}{line}\n{good}").as_bytes(), third).expect_err(line);
        assert_eq!((error.offset, error.reason), (good.len(), reason), "{line}");
    }
}

/// Return a synthetic graph with hubs, weights and widely spaced ids.
fn graph(edge_count: usize, spread: i64) -> (Vec<i64>, Vec<i64>, Vec<f64>) {
    let mut state = 1u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    let mut end = |_| {
        let below = 1 + next(60);
        next(below) as i64 * spread
    };
    let (sources, targets) = ((0..edge_count).map(&mut end).collect(), (0..edge_count).map(&mut end).collect());
    (sources, targets, (0..edge_count).map(|edge| (edge % 7) as f64).collect())
}

/// Compute the product edge by edge, as (row id, values of the row).
fn by_edge<F: Fold<T>, T: Copy>(
    (sources, targets, weights): (&[i64], &[i64], Option<&[f64]>),
    rows: &[i64],
    x: impl Fn(i64) -> Vec<T>,
) -> Vec<T> {
    let of_row = |row: &i64| {
        let entering = (0..sources.len()).filter(|&edge| targets[edge] == *row);
        let values = entering.map(|edge| {
            let weight = |value| weights.map_or(F::widened(value), |weights| F::weighted(value, weights[edge]));
            x(sources[edge]).into_iter().map(weight).collect::<Vec<_>>()
        });
        values.reduce(|a, b| a.iter().zip(b).map(|(&a, b)| F::fold(a, b)).collect()).expect("a row has an edge")
    };
    rows.iter().flat_map(of_row).map(F::narrowed).collect()
}

#[test]
fn products_match_the_edges_one_by_one() {
    for spread in [1, 1 << 40] {
        let (sources, targets, weights) = graph(3000, spread);
        for (weights, width) in [(None, 1), (None, 3), (Some(&weights[..]), 1), (Some(&weights[..]), 2)] {
            let local = LocalGraph::new(&sources, &targets, weights, false, &Threads::new(2)).unwrap();
            let edges = (&sources[..], &targets[..], weights);
            // The values are integers: sums are exact in any order.
            let value = |id: i64, at: usize| (id / spread * 31 + at as i64) % 97 - 20;
            let values = |id: i64| (0..width).map(move |at| value(id, at));
            let (x, mut out): (Vec<i64>, _) =
                (local.columns.iter().flat_map(|&id| values(id)).collect(), vec![0; local.rows.len() * width]);
            let x_real: Vec<f64> = x.iter().map(|&value| value as f64).collect();
            let mut out_real = vec![0.0; out.len()];
            for threads in [1, 3].map(Threads::new) {
                local.matrix.product::<Sum, f64>(&x_real, &mut out_real, width, &threads);
                let want = by_edge::<Sum, f64>(edges, &local.rows, |id| values(id).map(|value| value as f64).collect());
                assert_eq!(out_real, want);
                let whole = (edges.0, edges.1, None);
                local.matrix.product::<Min, i64>(&x, &mut out, width, &threads);
                assert_eq!(out, by_edge::<Min, i64>(whole, &local.rows, |id| values(id).collect()));
                local.matrix.product::<Max, i64>(&x, &mut out, width, &threads);
                assert_eq!(out, by_edge::<Max, i64>(whole, &local.rows, |id| values(id).collect()));
                local.matrix.product::<Or, i64>(&x, &mut out, width, &threads);
                assert_eq!(out, by_edge::<Or, i64>(whole, &local.rows, |id| values(id).collect()));
            }
        }
    }
}

#[test]
fn an_open_row_takes_its_smallest_source_in_the_frontier() {
    let (sources, targets, _) = graph(3000, 1);
    // More than 64 columns, so that the frontier has several words.
    let sources: Vec<i64> = (0..).zip(sources).map(|(edge, source)| source + edge % 3 * 60).collect();
    let local = LocalGraph::new(&sources, &targets, None, true, &Threads::new(1)).unwrap();
    for (sparsity, closed) in [(1, 2), (3, 1), (200, 3), (1000, 2)] {
        let frontier: Vec<bool> = local.columns.iter().map(|id| id % sparsity == 0).collect();
        let is_open: Vec<bool> = local.rows.iter().map(|id| closed == 1 || id % closed != 0).collect();
        let want = local.rows.iter().zip(&is_open).map(|(row, is_open)| {
            let entering = (0..sources.len()).filter(|&edge| targets[edge] == *row && sources[edge] % sparsity == 0);
            let min_source = entering.map(|edge| sources[edge]).min().filter(|_| *is_open);
            min_source.unwrap_or(NO_SOURCE)
        });
        let want: Vec<i64> = want.collect();
        for threads in [1, 3].map(Threads::new) {
            let mut out = vec![0; local.rows.len()];
            local.matrix.min_sources(&local.columns, &frontier, &is_open, &mut out, &threads);
            assert_eq!(out, want, "every {sparsity}th source");
        }
    }
}

#[test]
fn sums_of_float32_accumulate_in_float64() {
    let sources: Vec<i64> = (0..11).collect();
    let weights = [1.0; 11];
    for (weights, width) in [(None, 1), (Some(&weights[..]), 1), (None, 2)] {
        let local = LocalGraph::new(&sources, &[7; 11], weights, false, &Threads::new(1)).unwrap();
        // Ones that are added to 2^24 in float32 are lost.
        let x: Vec<f32> =
            (0..11 * width).map(|at| if local.columns[at / width] == 0 { 16_777_216.0 } else { 1.0 }).collect();
        let mut out = vec![0.0; width];
        local.matrix.product::<Sum, f32>(&x, &mut out, width, &Threads::new(1));
        assert_eq!(out, vec![16_777_226.0; width]);
    }
}

#[test]
fn nan_is_the_minimum_and_the_maximum_at_any_position() {
    let (sources, targets): (Vec<i64>, Vec<i64>) = (0..7).flat_map(|row| (0..=row).map(move |at| (at, row))).unzip();
    let local = LocalGraph::new(&sources, &targets, None, true, &Threads::new(1)).unwrap();
    for nan_at in 0..7 {
        let x: Vec<f64> = local.columns.iter().map(|&id| if id == nan_at { f64::NAN } else { id as f64 }).collect();
        let (mut least, mut greatest) = (vec![0.0; local.rows.len()], vec![0.0; local.rows.len()]);
        local.matrix.product::<Min, f64>(&x, &mut least, 1, &Threads::new(1));
        local.matrix.product::<Max, f64>(&x, &mut greatest, 1, &Threads::new(1));
        for (at, &row) in local.rows.iter().enumerate() {
            let has_nan = row >= nan_at;
            assert_eq!((least[at].is_nan(), greatest[at].is_nan()), (has_nan, has_nan), "row {row}, {nan_at}");
        }
    }
}

#[test]
#[should_panic(expected = "sums of whole numbers take no weights")]
fn sums_of_whole_numbers_take_no_weights() {
    let local = LocalGraph::new(&[0], &[0], Some(&[0.5]), false, &Threads::new(1)).unwrap();
    local.matrix.product::<Sum, i64>(&[3], &mut [0], 1, &Threads::new(1));
}

#[test]
fn vertices_are_numbered_by_falling_frequency_then_rising_id() {
    // Ids close together, and ids too far apart for a table.
    for spread in [1, 1 << 40] {
        let [sources, targets] = [[5, 9, 5, 2, 7], [1, 1, 3, 1, 3]].map(|ids| ids.map(|id| id * spread));
        let local = LocalGraph::new(&sources, &targets, None, false, &Threads::new(1)).unwrap();
        assert_eq!(local.columns, [5, 2, 7, 9].map(|id| id * spread));
        assert_eq!(local.rows, [1, 3].map(|id| id * spread));
        assert_eq!(local.matrix.columns(), [0, 1, 3, 0, 2]);
        assert_eq!(local.matrix.column_sums(), [2.0, 1.0, 1.0, 1.0]);
    }
}

#[test]
fn weights_have_the_order_of_their_edges() {
    let (sources, targets, weights) = ([5, 9, 5, 2, 5], [1, 1, 3, 1, 1], [0.5, 1.5, 2.5, 3.5, 4.5]);
    let local = LocalGraph::new(&sources, &targets, Some(&weights), false, &Threads::new(1)).unwrap();
    assert_eq!((local.columns, local.rows), (vec![5, 2, 9], vec![1, 3]));
    assert_eq!(local.matrix.columns(), [0, 0, 1, 2, 0]);
    assert_eq!(local.matrix.weights(), Some(&[0.5, 4.5, 3.5, 1.5, 2.5][..]));
}

#[test]
fn duplicate_edges_are_merged_only_on_request() {
    let (sources, targets) = ([4, 4, 4, 6, 6], [1, 1, 2, 1, 1]);
    let once = LocalGraph::new(&sources, &targets, None, true, &Threads::new(1)).unwrap();
    let each = LocalGraph::new(&sources, &targets, None, false, &Threads::new(1)).unwrap();
    assert_eq!((once.matrix.offsets(), once.matrix.columns()), (&[0, 2, 3][..], &[0, 1, 0][..]));
    assert_eq!((each.matrix.entry_count(), each.matrix.column_sums()), (5, vec![3.0, 2.0]));
}

#[test]
fn no_edges_make_an_empty_matrix() {
    let local = LocalGraph::new(&[], &[], None, true, &Threads::new(2)).unwrap();
    local.matrix.product::<Sum, f64>(&[], &mut [], 1, &Threads::new(2));
    assert_eq!((local.matrix.row_count(), local.matrix.column_count()), (0, 0));
}

#[test]
fn a_step_of_pagerank_is_its_formula_and_the_same_for_any_threads() {
    let count = 50_000;
    let column = |seed: usize| (0..count).map(|at| ((at * seed) % 101) as f64 / 101.0).collect::<Vec<f64>>();
    let (sums, teleport, share, before) = (column(7), column(11), column(13), column(17));
    let inverse_out: Vec<f64> = (0..count).map(|at| if at % 5 == 0 { 0.0 } else { 1.0 / at as f64 }).collect();
    let places: Vec<u32> = (0..count as u32).map(|at| if at % 3 == 0 { u32::MAX } else { count as u32 - at }).collect();
    let counted: Vec<bool> = (0..count).map(|at| at % 2 == 0).collect();
    let step = PageRankStep {
        sums: &sums,
        places: Some(&places),
        inverse_out: &inverse_out,
        counted: Some(&counted),
        teleport: Some(&teleport),
        share: Some(&share),
        uniform: f64::NAN,
        damping: 0.75,
        dangling: 0.5,
    };
    let run = |thread_count| {
        let (mut ranks, mut contributions) = (before.clone(), vec![0.0; count]);
        let progress = pagerank_step(step, &mut ranks, &mut contributions, &Threads::new(thread_count));
        (ranks, contributions, progress)
    };

    let (ranks, contributions, progress) = run(1);

    let (mut error, mut dangling) = (0.0, 0.0);
    for at in 0..count {
        let sum = if at % 3 == 0 { 0.0 } else { sums[count - at] };
        let want = 0.75 * (sum + 0.5 * share[at]) + 0.25 * teleport[at];
        assert_eq!((ranks[at], contributions[at]), (want, want * inverse_out[at]));
        error += if at % 2 == 0 { (want - before[at]).abs() } else { 0.0 };
        dangling += if at % 10 == 0 { want } else { 0.0 };
    }
    assert!((progress.error - error).abs() < 1e-9 * error && (progress.dangling - dangling).abs() < 1e-9 * dangling);
    assert_eq!(run(3), (ranks, contributions, progress));
}

#[test]
fn ids_can_have_the_maximum_value() {
    let sources = [i64::MAX, i64::MAX - 1, i64::MAX];
    let local = LocalGraph::new(&sources, &[0, i64::MAX, i64::MAX], None, false, &Threads::new(1)).unwrap();
    assert_eq!((local.columns, local.rows), (vec![i64::MAX, i64::MAX - 1], vec![i64::MAX, 0]));
}

#[test]
fn triangles_are_counted_with_the_directions_of_the_opposite_edge() {
    // A complete graph of 4 vertices with edges to larger ones. Edge i → j exists in (i + j) % 2 + 1 directions.
    let (offsets, targets) = (vec![0, 3, 5, 6, 6], vec![1, 2, 3, 2, 3, 3]);
    let directions = vec![2, 1, 2, 2, 1, 2];
    let lists = TargetLists { offsets: &offsets, targets: &targets, directions: &directions };
    let none = TargetLists { offsets: &[0; 5], targets: &[], directions: &[] };

    for count in 1..=3 {
        let threads = Threads::new(count);
        let opposite = [[3, 2 + 1 + 2], [3, 1 + 2 + 2], [3, 2 + 2 + 1], [3, 2 + 1 + 2]];
        assert_eq!(count_triangles(lists, lists, &threads), opposite, "{count} threads");
        assert_eq!(count_triangles(lists, none, &threads), [[0, 0]; 4]);
    }
}
