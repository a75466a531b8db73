//! Logistic regression on sparse rows, alternating least squares and scatter matrices, compared with their formulas.

use ripieno_kernels::{
    AlsObjective, Feedback, Matrix, Ratings, RegressionRows, Simd, Solver, SparseRows, Threads, add_gradients,
    add_products, column_sums, logistic_curvature, logistic_loss, scatter, solve_factors,
};

/// Return pseudorandom numbers in −1 … 1.
fn numbers(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / (1u64 << 30) as f64 - 1.0
        })
        .collect()
}

/// Return rows with `row % 5` entries each, in distinct columns of seven.
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
            let (mut probabilities, mut gradient) = (vec![0.0; rows * k], vec![9.0; 8 * k]);
            let threads = Threads::new(threads);
            let loss = logistic_loss(sparse, &classes, &moved, &mut probabilities, &mut gradient, &threads);
            (loss, probabilities, gradient)
        };
        let (loss, probabilities, gradient) = found(0.0, 1);
        assert_eq!((loss, probabilities.clone(), gradient.clone()), found(0.0, 3), "threads change nothing");

        let step = 1e-4;
        let (before, after) = (found(-step, 1), found(step, 1));
        let slope: f64 = gradient.iter().zip(&direction).map(|(g, d)| g * d).sum();
        assert!(((after.0 - before.0) / (2.0 * step) - slope).abs() < 1e-5 * loss);
        let mut product = vec![9.0; 8 * k];
        logistic_curvature(sparse, &probabilities, &direction, &mut product, &Threads::new(2));
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
    let (mut probabilities, mut gradient) = ([0.0; 2], [0.0; 2]);
    let threads = Threads::new(1);
    assert_eq!(logistic_loss(sparse, &[1, 0], &[1.0, 0.0], &mut probabilities, &mut gradient, &threads), 0.0);
    assert_eq!(probabilities, [1.0, 0.0]);
    assert_eq!(logistic_loss(sparse, &[0, 1], &[1.0, 0.0], &mut probabilities, &mut gradient, &threads), 2e4);
}

/// Return the error of `x` in its row's equations, computed directly, and the loss of the row.
fn gradient_and_loss(
    x: &[f64],
    columns: &[i32],
    values: &[f64],
    factors: &[f64],
    rank: usize,
    feedback: (bool, f64),
) -> (f64, f64) {
    let (implicit, reg) = feedback;
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
    (slope.iter().fold(0.0, |max, value| value.abs().max(max)), loss)
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
                let feedback = if implicit {
                    Feedback::Implicit { reg: 0.5, alpha: 2.0, gram: &gram }
                } else {
                    Feedback::Explicit { reg: 0.5 }
                };
                let ratings = Ratings { starts: &starts, columns: &columns, values: &values };
                let mut out = vec![9.0f32; rows * rank];
                let threads = Threads::with_simd(2, simd);
                let AlsObjective { loss, penalty } =
                    solve_factors(ratings, &factors, rank, feedback, Solver::Cholesky, &mut out, &threads);
                assert!(out[..rank].iter().all(|&x| x == 0.0), "no ratings, no factors");
                let (mut expected, mut lengths) = (0.0, 0.0);
                for row in 1..rows {
                    let range = starts[row] as usize..starts[row + 1] as usize;
                    let x: Vec<f64> = out[row * rank..(row + 1) * rank].iter().map(|&x| x as f64).collect();
                    let own: Vec<f64> = values[range.clone()].iter().map(|&x| x as f64).collect();
                    let reg = if implicit { 0.5 } else { 0.5 * range.len() as f64 };
                    let (slope, loss) = gradient_and_loss(&x, &columns[range], &own, &wide, rank, (implicit, reg));
                    assert!(slope < 2e-3, "{simd:?} rank {rank} implicit {implicit} row {row}: {slope}");
                    expected += loss;
                    lengths += reg * x.iter().map(|x| x * x).sum::<f64>();
                }
                assert!((loss - expected).abs() < 1e-3 * expected, "{simd:?} rank {rank}: {loss} {expected}");
                assert!((penalty - lengths).abs() < 1e-5 * lengths, "{simd:?} rank {rank}: {penalty} {lengths}");
            }
        }
    }
}

#[test]
fn many_small_ratings_after_a_large_one_are_not_lost() {
    // In f32, 2^24 + 1 is 2^24.
    let count = 64 * 64;
    let columns: Vec<i32> = (0..=count).map(|at| i32::from(at > 0)).collect();
    let values: Vec<f32> = columns.iter().map(|&at| if at == 0 { 4096.0 } else { 2.0 }).collect();
    let ratings = Ratings { starts: &[0, columns.len() as i64], columns: &columns, values: &values };
    let (large, count) = (4096.0 * 4096.0, count as f64);
    let expected = (large + 2.0 * count) / (large + count + 1e-6 * (count + 1.0));
    for solver in [Solver::Cholesky, Solver::Conjugate { steps: 2 }] {
        for simd in Simd::available() {
            let mut out = [0.0];
            let threads = Threads::with_simd(1, simd);
            solve_factors(ratings, &[4096.0, 1.0], 1, Feedback::Explicit { reg: 1e-6 }, solver, &mut out, &threads);
            assert!((out[0] as f64 - expected).abs() < 2e-5, "{simd:?} {solver:?}: {} {expected}", out[0]);
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

#[test]
fn conjugate_gradients_converge_monotonically_with_the_same_bits_for_any_number_of_threads() {
    let (rows, column_count) = (140, 90);
    let (mut starts, mut columns) = (vec![0i64], Vec::new());
    for row in 0..rows {
        columns.extend((0..row % 71).map(|at| ((row + at) % column_count) as i32));
        starts.push(columns.len() as i64);
    }
    let values: Vec<f32> = numbers(columns.len(), 5).iter().map(|&x| (x + 1.5) as f32).collect();
    let ratings = Ratings { starts: &starts, columns: &columns, values: &values };
    for simd in Simd::available() {
        for rank in [1, 3, 8, 16, 17, 32, 50] {
            let factors: Vec<f32> = numbers(column_count * rank, 6).iter().map(|&x| x as f32).collect();
            let gram: Vec<f32> = (0..rank * rank)
                .map(|at| factors.chunks(rank).map(|row| row[at / rank] * row[at % rank]).sum::<f32>())
                .collect();
            for feedback in [Feedback::Implicit { reg: 2.0, alpha: 2.0, gram: &gram }, Feedback::Explicit { reg: 2.0 }]
            {
                let found = |solver: Solver, threads: usize| {
                    let mut out: Vec<f32> = numbers(rows * rank, 8).iter().map(|&x| 0.1 * x as f32).collect();
                    let threads = Threads::with_simd(threads, simd);
                    let objective = solve_factors(ratings, &factors, rank, feedback, solver, &mut out, &threads);
                    (out, objective)
                };
                let minimized = |(out, objective): &(Vec<f32>, AlsObjective)| {
                    let squares = out.chunks(rank).zip(starts.windows(2)).map(|(row, starts)| {
                        let own: f64 = row.iter().map(|&x| x as f64 * x as f64).sum();
                        if let Feedback::Explicit { .. } = feedback {
                            own * (starts[1] - starts[0]) as f64
                        } else {
                            own
                        }
                    });
                    let penalty = 2.0 * squares.sum::<f64>();
                    assert!((objective.penalty - penalty).abs() <= 1e-5 * penalty, "{objective:?} {penalty}");
                    objective.loss + penalty
                };
                let solved = found(Solver::Cholesky, 1);
                let few = found(Solver::Conjugate { steps: 2 }, 1);
                assert_eq!(few, found(Solver::Conjugate { steps: 2 }, 3), "threads change nothing");
                let far = found(Solver::Conjugate { steps: 100 }, 1);
                assert!(far.0[..rank].iter().all(|&x| x == 0.0), "no ratings, no factors");
                let minimum = minimized(&solved);
                let mut before = minimized(&found(Solver::Conjugate { steps: 0 }, 1));
                for steps in [1, 2, 4, 8, 100] {
                    let after = minimized(&found(Solver::Conjugate { steps }, 1));
                    assert!(after < before + 1e-5 * minimum, "{simd:?} rank {rank} steps {steps}: {after} {before}");
                    before = after;
                }
                assert!((before / minimum - 1.0).abs() < 1e-4, "{simd:?} rank {rank}: {before} {minimum}");
                for (far, solved) in far.0.iter().zip(&solved.0) {
                    assert!((far - solved).abs() < 5e-3, "{simd:?} rank {rank}: {far} {solved}");
                }
            }
        }
    }
}

/// Rows with a few targets, and a center of all columns.
struct RegressionCase {
    wide: Vec<f64>,
    narrow: Vec<f32>,
    targets: Vec<f64>,
    weights: Vec<f64>,
    center: Vec<f64>,
    shape: (usize, usize, usize),
}

impl RegressionCase {
    fn of(rows: usize, width: usize, target_count: usize) -> RegressionCase {
        let narrow: Vec<f32> = numbers(rows * width, 9).iter().map(|x| *x as f32 + 3.0).collect();
        RegressionCase {
            wide: narrow.iter().map(|&x| x.into()).collect(),
            narrow,
            targets: numbers(rows * target_count, 11),
            weights: numbers(rows, 10).iter().map(|x| x + 1.0).collect(),
            center: (0..width + target_count).map(|at| 3.0 + 0.01 * at as f64).collect(),
            shape: (rows, width, target_count),
        }
    }

    fn rows<'a, P>(&'a self, points: &'a [P], weights: Option<&'a [f64]>) -> RegressionRows<'a, P> {
        let (rows, width, target_count) = self.shape;
        let targets = (target_count > 0).then(|| Matrix::new(&self.targets, rows, target_count));
        RegressionRows { points: Matrix::new(points, rows, width), targets, weights }
    }

    fn centered(&self, row: usize, column: usize) -> f64 {
        let (_, width, target_count) = self.shape;
        let value = match column.checked_sub(width) {
            None => self.wide[row * width + column],
            Some(target) => self.targets[row * target_count + target],
        };
        value - self.center[column]
    }

    /// Return the weighted sum over the rows.
    fn sum(&self, weights: Option<&[f64]>, value: impl Fn(usize) -> f64) -> f64 {
        (0..self.shape.0).map(|row| weights.map_or(1.0, |weights| weights[row]) * value(row)).sum()
    }
}

#[test]
fn products_of_columns_match_the_formula_for_every_width_with_the_same_bits_by_threads() {
    for simd in Simd::available() {
        // The last shape has several segments of rows.
        for (rows, width, targets) in
            [(1, 1, 0), (7, 3, 1), (300, 16, 0), (521, 31, 2), (1030, 70, 3), (0, 4, 1), (30000, 5, 1)]
        {
            let (columns, total) = (RegressionCase::of(rows, width, targets), width + targets);
            for weights in [None, Some(columns.weights.as_slice())] {
                let found = |threads: usize| {
                    let threads = Threads::with_simd(threads, simd);
                    let mut sums = [(); 3].map(|()| vec![1.0; total * total]);
                    let [of_wide, of_narrow, of_mixed] = &mut sums;
                    add_products::<f64, _>(columns.rows(&columns.wide, weights), &columns.center, of_wide, &threads);
                    add_products::<f32, _>(
                        columns.rows(&columns.narrow, weights),
                        &columns.center,
                        of_narrow,
                        &threads,
                    );
                    add_products::<f64, _>(columns.rows(&columns.narrow, weights), &columns.center, of_mixed, &threads);
                    sums
                };
                let [of_wide, of_narrow, of_mixed] = found(1);
                assert_eq!([of_wide.clone(), of_narrow.clone(), of_mixed.clone()], found(3), "threads change nothing");
                assert_eq!(of_wide, of_mixed, "conversion to f64 is exact");
                for (top, left) in (0..total).flat_map(|top| (top..total).map(move |left| (top, left))) {
                    let sum = columns.sum(weights, |row| columns.centered(row, top) * columns.centered(row, left));
                    let at = top * total + left;
                    let tolerance = 1e-12 * (rows + 1) as f64 * (1.0 + columns.center[total - 1].powi(2));
                    assert!((of_wide[at] - 1.0 - sum).abs() < tolerance, "{simd:?} {rows} × {width}");
                    assert!((of_narrow[at] - 1.0 - sum).abs() < 1e6 * tolerance, "{simd:?} {rows} × {width}");
                }
            }
        }
    }
}

#[test]
fn sums_and_gradients_of_columns_match_the_formula_with_the_same_bits_by_threads() {
    for simd in Simd::available() {
        for (rows, width, targets) in [(1, 1, 1), (7, 3, 2), (521, 33, 1), (0, 4, 1), (30000, 20, 2)] {
            let columns = RegressionCase::of(rows, width, targets);
            let coef = numbers(targets * width, 12);
            for weights in [None, Some(columns.weights.as_slice())] {
                let found = |threads: usize| {
                    let threads = Threads::with_simd(threads, simd);
                    let (mut sums, mut gradients) = (vec![1.0; width], vec![1.0; targets * width]);
                    let points = Matrix::new(&columns.narrow, rows, width);
                    let greatest = column_sums(points, weights, &mut sums, &threads);
                    let regression = columns.rows(&columns.narrow, weights);
                    let coef = Matrix::new(&coef, targets, width);
                    add_gradients(regression, &columns.center, coef, &mut gradients, &threads);
                    (greatest, sums, gradients)
                };
                let (greatest, sums, gradients) = found(1);
                assert_eq!((greatest, sums.clone(), gradients.clone()), found(3), "threads change nothing");
                assert_eq!(greatest, columns.wide.iter().fold(0.0, |max: f64, value| max.max(value.abs())));
                let tolerance = 1e-11 * (rows + 1) as f64;
                for column in 0..width {
                    let sum = columns.sum(weights, |row| columns.wide[row * width + column]);
                    assert!((sums[column] - 1.0 - sum).abs() < tolerance, "{simd:?} {rows} × {width}");
                    for target in 0..targets {
                        let sum = columns.sum(weights, |row| {
                            let weighted = (0..width).map(|at| coef[target * width + at] * columns.centered(row, at));
                            (columns.centered(row, width + target) - weighted.sum::<f64>())
                                * columns.centered(row, column)
                        });
                        let found = gradients[target * width + column] - 1.0;
                        assert!((found - sum).abs() < 10.0 * tolerance, "{simd:?} {rows} × {width}: {found} {sum}");
                    }
                }
            }
        }
    }
}
