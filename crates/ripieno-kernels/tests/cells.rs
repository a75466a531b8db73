//! K-means++ in cells: the same centers for any division into calls and any number of threads, drawn in proportion to
//! the rows' costs.

use crate::common::SplitMix64;
use ripieno_kernels::{Cells, Center, Growth, Matrix, Simd, Threads, grow_cells};

const FOREVER: f64 = f64::INFINITY;

fn grown(values: &[f32], columns: usize, row_weights: &[f64], ends: &[i64], growth: Growth) -> Vec<Vec<Center>> {
    let zeros = vec![0; ends.len()];
    let streams: Vec<u64> = (0..ends.len() as u64).collect();
    let cells = Cells {
        points: Matrix::new(values, row_weights.len(), columns),
        row_weights,
        ends,
        chosen: &[],
        chosen_ends: &zeros,
        times: &vec![0.0; ends.len()],
        streams: &streams,
    };
    let found = grow_cells(cells, growth, &Threads::new(1));
    for simd in Simd::available() {
        assert_eq!(grow_cells(cells, growth, &Threads::with_simd(3, simd)), found);
    }
    found
}

fn reals(seed: u64, count: usize) -> Vec<f32> {
    let mut numbers = SplitMix64(seed);
    (0..count).map(|_| numbers.real() as f32).collect()
}

#[test]
fn growing_a_cell_in_two_calls_gives_the_same_centers() {
    let (values, row_weights, ends) = (reals(1, 300 * 3), vec![1.0; 300], [120, 120, 300]);
    let growth = |center_count, until| Growth { trial_count: 3, center_count, until };
    let whole = grown(&values, 3, &row_weights, &ends, growth(20, FOREVER));
    let begun = grown(&values, 3, &row_weights, &ends, growth(7, FOREVER));

    let chosen: Vec<i64> = begun.iter().flatten().map(|center| center.row).collect();
    let cells = Cells {
        points: Matrix::new(&values, 300, 3),
        row_weights: &row_weights,
        ends: &ends,
        chosen: &chosen,
        chosen_ends: &[7, 7, 14],
        times: &[begun[0][6].time, 0.0, begun[2][6].time],
        streams: &[0, 1, 2],
    };
    let rest = grow_cells(cells, growth(20, FOREVER), &Threads::new(2));

    for cell in 0..3 {
        assert_eq!([begun[cell].clone(), rest[cell].clone()].concat(), whole[cell]);
    }
    assert_eq!(whole.iter().map(Vec::len).collect::<Vec<_>>(), [20, 0, 20]);
    let until = whole[0][12].time;
    let cut = grown(&values, 3, &row_weights, &ends, growth(20, until));
    assert_eq!(cut[0], whole[0][..13]);
    assert!(cut[2].iter().all(|center| center.time <= until) && whole[2][cut[2].len()].time > until);
}

#[test]
fn centers_have_weight_and_distinct_values_until_no_such_row_is_left() {
    let values: Vec<f32> = (0..40).map(|row| (row / 2) as f32).collect();
    let row_weights: Vec<f64> = (0..40).map(|row| (row % 4 > 1) as u8 as f64).collect();

    let found = grown(&values, 1, &row_weights, &[40], Growth { trial_count: 2, center_count: 40, until: FOREVER });

    let mut places: Vec<i64> = found[0].iter().map(|center| center.row / 2).collect();
    places.sort_unstable();
    assert_eq!(places, (0..10).map(|place| 2 * place + 1).collect::<Vec<_>>());
    assert_eq!(found[0][0].time, 0.0);
    assert!(found[0].windows(2).all(|pair| pair[0].time < pair[1].time));
}

#[test]
fn first_centers_are_sampled_by_weight_and_second_ones_by_cost() {
    // Ten thousand cells with two near rows and a far row of little weight.
    let cell_count = 10_000;
    let values = [0.0, 1.0, 11.0].repeat(cell_count);
    let row_weights = [2.0, 7.0, 1.0].repeat(cell_count);
    let ends: Vec<i64> = (1..=cell_count as i64).map(|cell| 3 * cell).collect();

    let found = grown(&values, 1, &row_weights, &ends, Growth { trial_count: 1, center_count: 2, until: FOREVER });

    let share = |row: i64, number: usize, among: &dyn Fn(&Vec<Center>) -> bool| {
        let cells: Vec<_> = found.iter().filter(|centers| among(centers)).collect();
        cells.iter().filter(|centers| centers[number].row % 3 == row).count() as f64 / cells.len() as f64
    };
    for (row, part) in [(0, 0.2), (1, 0.7), (2, 0.1)] {
        assert!((share(row, 0, &|_| true) - part).abs() < 0.02);
    }
    // From the row at 1, the row at 0 costs 2·1 and the row at 11 costs 1·100; waiting times have the mean 1 / 102.
    let from_one = |centers: &Vec<Center>| centers[0].row % 3 == 1;
    assert!((share(2, 1, &from_one) - 100.0 / 102.0).abs() < 0.01);
    let times: Vec<f64> = found.iter().filter(|centers| from_one(centers)).map(|centers| centers[1].time).collect();
    assert!((times.iter().sum::<f64>() / times.len() as f64 * 102.0 - 1.0).abs() < 0.05);
}
