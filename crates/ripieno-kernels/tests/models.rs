//! Logistic regression on sparse rows and alternating least squares, held against what their formulas say.

use ripieno_kernels::{
    Aim, Ratings, Simd, SparseRows, Threads, logistic_curvature, logistic_loss, scatter, solve_factors,
};

/// Numbers that look random, of −1 … 1.
fn numbers(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / (1u64 << 30) as f64 - 1.0
        })
        .collect()
}

/// Rows with `row % 5` entries each, in distinct columns of seven.
fn entries(rows: usize) -> (Vec<i64>, Vec<i32>) {
    let (mut starts, mut columns) = (vec![0], Vec::new());
    for row in 0..rows {
        columns.extend((0..row % 5).map(|at| ((row * 3 + at) % 7) as i32));
        starts.push(columns.len() as i64);
    }
    (starts, columns)
}

#[test]
fn gradients_and_curvature_are_the_slopes_of_the_loss_with_any_number_of_threads() {
    let rows = 60_000;
    let (starts, columns) = entries(rows);
    let (values, weights) = (numbers(columns.len(), 1), numbers(rows, 2).iter().map(|x| x + 1.5).collect::<Vec<_>>());
    let sparse = SparseRows { starts: &starts, columns: &columns, values: &values, column_count: 7, weights: &weights };
    for (k, class_count) in [(1, 2), (3, 3)] {
        let classes: Vec<i32> = (0..rows).map(|row| (row * row % class_count) as i32).collect();
        let (coef, direction) = (numbers(8 * k, 3), numbers(8 * k, 4));
        let found = |step: f64, threads: usize| {
            let moved: Vec<f64> = coef.iter().zip(&direction).map(|(at, along)| at + step * along).collect();
            let (mut chances, mut gradient) = (vec![0.0; rows * k], vec![9.0; 8 * k]);
            let threads = Threads::new(threads);
            let loss = logistic_loss(sparse, &classes, &moved, &mut chances, &mut gradient, &threads);
            (loss, chances, gradient)
        };
        let (loss, chances, gradient) = found(0.0, 1);
        assert_eq!((loss, chances.clone(), gradient.clone()), found(0.0, 3), "threads change nothing");

        let step = 1e-4;
        let (before, after) = (found(-step, 1), found(step, 1));
        let slope: f64 = gradient.iter().zip(&direction).map(|(g, d)| g * d).sum();
        assert!(((after.0 - before.0) / (2.0 * step) - slope).abs() < 1e-5 * loss);
        let mut product = vec![9.0; 8 * k];
        logistic_curvature(sparse, &chances, &direction, &mut product, &Threads::new(2));
        for (at, found) in product.iter().enumerate() {
            let slope = (after.2[at] - before.2[at]) / (2.0 * step);
            assert!((slope - found).abs() < 1e-4 * rows as f64 * 1e-2, "{slope} {found}");
        }
    }
}

#[test]
fn large_scores_have_finite_losses() {
    let sparse = SparseRows {
        starts: &[0, 1, 2],
        columns: &[0, 0],
        values: &[1e4, -1e4],
        column_count: 1,
        weights: &[1.0, 1.0],
    };
    let (mut chances, mut gradient) = ([0.0; 2], [0.0; 2]);
    let threads = Threads::new(1);
    assert_eq!(logistic_loss(sparse, &[1, 0], &[1.0, 0.0], &mut chances, &mut gradient, &threads), 0.0);
    assert_eq!(chances, [1.0, 0.0]);
    assert_eq!(logistic_loss(sparse, &[0, 1], &[1.0, 0.0], &mut chances, &mut gradient, &threads), 2e4);
}

/// How far `x` is from solving its row's equations, which are written down in full, and the loss of the row.
fn missed(x: &[f64], columns: &[i32], values: &[f64], factors: &[f64], rank: usize, aim: (bool, f64)) -> (f64, f64) {
    let (implicit, reg) = aim;
    let column_count = factors.len() / rank;
    let factor = |column: usize| &factors[column * rank..(column + 1) * rank];
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut slope: Vec<f64> = x.iter().map(|x| reg * x).collect();
    let mut loss = 0.0;
    for column in 0..column_count {
        let rating = columns.iter().position(|&at| at as usize == column).map(|at| values[at]);
        let (weight, wanted) = match (implicit, rating) {
            (true, rating) => (1.0 + 2.0 * rating.unwrap_or(0.0), if rating.is_some() { 1.0 } else { 0.0 }),
            (false, Some(rating)) => (1.0, rating),
            (false, None) => continue,
        };
        let error = dot(x, factor(column)) - wanted;
        loss += weight * error * error;
        slope.iter_mut().zip(factor(column)).for_each(|(sum, value)| *sum += weight * error * value);
    }
    (slope.iter().fold(0.0, |most, value| value.abs().max(most)), loss)
}

#[test]
fn factors_solve_the_normal_equations_of_their_row_on_every_simd_level_for_every_rank() {
    let (rows, column_count) = (23, 90);
    let (mut starts, mut columns) = (vec![0i64], Vec::new());
    for row in 0..rows {
        columns.extend((0..row * 4).map(|at| ((row + at) % column_count) as i32));
        starts.push(columns.len() as i64);
    }
    let values: Vec<f32> = numbers(columns.len(), 5).iter().map(|&x| (x + 1.5) as f32).collect();
    for simd in Simd::available() {
        for rank in [1, 3, 8, 16, 17, 32, 50] {
            let factors: Vec<f32> = numbers(column_count * rank, 6).iter().map(|&x| x as f32).collect();
            let wide: Vec<f64> = factors.iter().map(|&x| x as f64).collect();
            let gram: Vec<f32> = (0..rank * rank)
                .map(|at| wide.chunks(rank).map(|row| row[at / rank] * row[at % rank]).sum::<f64>() as f32)
                .collect();
            for implicit in [false, true] {
                let aim = if implicit {
                    Aim::Implicit { reg: 0.5, alpha: 2.0, gram: &gram }
                } else {
                    Aim::Explicit { reg: 0.5 }
                };
                let ratings = Ratings { starts: &starts, columns: &columns, values: &values };
                let mut out = vec![9.0f32; rows * rank];
                let threads = Threads::with_simd(2, simd);
                let loss = solve_factors(ratings, &factors, rank, aim, &mut out, &threads);
                assert!(out[..rank].iter().all(|&x| x == 0.0), "no ratings, no factors");
                let mut expected = 0.0;
                for row in 1..rows {
                    let range = starts[row] as usize..starts[row + 1] as usize;
                    let x: Vec<f64> = out[row * rank..(row + 1) * rank].iter().map(|&x| x as f64).collect();
                    let own: Vec<f64> = values[range.clone()].iter().map(|&x| x as f64).collect();
                    let reg = if implicit { 0.5 } else { 0.5 * range.len() as f64 };
                    let (slope, loss) = missed(&x, &columns[range], &own, &wide, rank, (implicit, reg));
                    assert!(slope < 2e-3, "{simd:?} rank {rank} implicit {implicit} row {row}: {slope}");
                    expected += loss;
                }
                assert!((loss - expected).abs() < 1e-3 * expected, "{simd:?} rank {rank}: {loss} {expected}");
            }
        }
    }
}

#[test]
fn a_scatter_matrix_has_the_same_bits_in_any_order_of_rows_and_on_every_simd_level() {
    let (rows, rank) = (9_000, 5);
    let factors: Vec<f32> = numbers(rows * rank, 7).iter().map(|&x| x as f32).collect();
    let backwards: Vec<f32> = factors.chunks(rank).rev().flatten().copied().collect();
    let anchor = 1.5 * f64::from(1 << 17);
    let mut expected = vec![0.0; rank * rank];
    scatter(&factors, rank, anchor, &mut expected, &Threads::with_simd(1, Simd::Scalar));
    for at in 0..rank * rank {
        let wide: f64 = factors.chunks(rank).map(|row| row[at / rank] as f64 * row[at % rank] as f64).sum();
        assert!((expected[at] - wide).abs() < 1e-6, "{at}: {} {wide}", expected[at]);
    }
    for simd in Simd::available() {
        let mut found = vec![9.0; rank * rank];
        scatter(&backwards, rank, anchor, &mut found, &Threads::with_simd(3, simd));
        assert_eq!(found, expected, "{simd:?}");
        let (mut first, mut second) = (vec![0.0; rank * rank], vec![0.0; rank * rank]);
        let (some, others) = factors.split_at(100 * rank);
        scatter(some, rank, anchor, &mut first, &Threads::with_simd(2, simd));
        scatter(others, rank, anchor, &mut second, &Threads::with_simd(2, simd));
        let together: Vec<f64> = first.iter().zip(&second).map(|(a, b)| a + b).collect();
        assert_eq!(together, expected, "{simd:?}");
    }
}
