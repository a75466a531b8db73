//! Times passes of K-means and says where the time goes.
//!
//!     cargo run --release --example kmeans_pass -- [vectors.npy] [clusters] [threads] [passes] [bounds]
//!
//! `vectors.npy` holds f32 in C order; without it (or with `ROWSxCOLUMNS`) the vectors are made up. The centroids start
//! at rows `i·n/k`. With `bounds` every pass is timed with and without those of the one before. The rate is nominal:
//! `2·n·k·d` operations a pass.

use ripieno_kernels::{
    Bounds, Matrix, Pass, Simd, Threads, assign, assign_accumulate, assign_accumulate_within, recenter,
};
use std::time::Instant;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let text = |index: usize, default: &str| arguments.get(index).cloned().unwrap_or(default.to_string());
    let number = |index: usize, default: &str| text(index, default).parse().expect("a number");
    let (values, columns) = vectors(&text(0, "20000x512"));
    let (cluster_count, thread_count, pass_count): (usize, usize, usize) =
        (number(1, "1000"), number(2, "2"), number(3, "3"));

    let points = Matrix::new(&values, values.len() / columns, columns);
    println!("{} x {columns} f32, {cluster_count} clusters, {thread_count} threads", points.rows());
    if text(4, "") == "bounds" {
        return time_bounds(points, cluster_count, &Threads::new(thread_count), pass_count);
    }
    for simd in Simd::available().into_iter().rev() {
        time(points, cluster_count, &Threads::with_simd(thread_count, simd), pass_count);
    }
}

fn time(points: Matrix<f32>, cluster_count: usize, threads: &Threads, pass_count: usize) {
    let (n, d, k) = (points.rows(), points.columns(), cluster_count);
    let mut centroids: Vec<f32> = (0..k).flat_map(|i| points.row(i * n / k)).copied().collect();
    let (mut labels, mut sums, mut weight_sums) = (vec![0; n], vec![0.0; k * d], vec![0.0; k]);
    let (mut pass_s, mut assign_s) = (f64::INFINITY, f64::INFINITY);
    let mut inertia = 0.0;
    for _ in 0..pass_count {
        let start = Instant::now();
        assign(points, Matrix::new(&centroids, k, d), &mut labels, None, threads);
        assign_s = assign_s.min(start.elapsed().as_secs_f64());

        let start = Instant::now();
        let pass =
            Pass { labels: &mut labels, squared_distances: None, sums: &mut sums, weight_sums: &mut weight_sums };
        inertia = assign_accumulate(points, Matrix::new(&centroids, k, d), None, pass, threads);
        pass_s = pass_s.min(start.elapsed().as_secs_f64());
        recenter(&mut centroids, &sums, &weight_sums);
    }
    let pairs = (n * k) as f64;
    println!(
        "{:>7}: pass {:8.1} ms = {:6.1} GFLOP/s = {:6.2} G pairs/s; assign {:8.1} ms, accumulate {:6.1} ms; \
         inertia {inertia:.6}",
        format!("{:?}", threads.simd()),
        pass_s * 1e3,
        2.0 * pairs * d as f64 / pass_s / 1e9,
        pairs / pass_s / 1e9,
        assign_s * 1e3,
        (pass_s - assign_s) * 1e3,
    );
}

fn time_bounds(points: Matrix<f32>, cluster_count: usize, threads: &Threads, pass_count: usize) {
    let (n, d, k) = (points.rows(), points.columns(), cluster_count);
    let mut centroids: Vec<f32> = (0..k).flat_map(|i| points.row(i * n / k)).copied().collect();
    let (mut labels, mut sums, mut weight_sums) = (vec![0; n], vec![0.0; k * d], vec![0.0; k]);
    let (mut bounds, mut plain_s, mut bounded_s) = (Bounds::new(size_of_val(points.values())), 0.0, 0.0);
    for number in 1..=pass_count {
        let mut timed = |bounds: Option<&mut Bounds>| {
            let (labels, sums, weight_sums) = (&mut labels[..], &mut sums[..], &mut weight_sums[..]);
            let pass = Pass { labels, squared_distances: None, sums, weight_sums };
            let (start, centroids) = (Instant::now(), Matrix::new(&centroids, k, d));
            let inertia = match bounds {
                Some(bounds) => assign_accumulate_within(points, centroids, None, pass, bounds, threads),
                None => assign_accumulate(points, centroids, None, pass, threads),
            };
            (start.elapsed().as_secs_f64(), inertia)
        };
        let (plain, bounded) = (timed(None), timed(Some(&mut bounds)));
        assert_eq!(plain.1, bounded.1, "bounds change nothing");
        println!(
            "pass {number:2}: {:7.1} ms, with bounds {:7.1} ms, {:5.1} % compared; inertia {:.6}",
            plain.0 * 1e3,
            bounded.0 * 1e3,
            bounds.compared() * 100.0,
            plain.1
        );
        (plain_s, bounded_s) = (plain_s + plain.0, bounded_s + bounded.0);
        recenter(&mut centroids, &sums, &weight_sums);
    }
    println!("{:.2} times as fast with bounds of {} bytes", plain_s / bounded_s, bounds.bytes());
}

/// The vectors of an .npy file, or `ROWSxCOLUMNS` made-up ones, and the number of columns.
fn vectors(source: &str) -> (Vec<f32>, usize) {
    let shape = source.split_once('x').and_then(|(n, d)| Some((n.parse::<usize>().ok()?, d.parse::<usize>().ok()?)));
    if let Some((rows, columns)) = shape {
        let mut state = 1u64;
        let uniform = |_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1 << 24) as f32
        };
        return ((0..rows * columns).map(uniform).collect(), columns);
    }
    let bytes = std::fs::read(source).expect("a readable file");
    let header_end = 10 + u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
    let header = String::from_utf8_lossy(&bytes[10..header_end]);
    assert!(header.contains("<f4") && header.contains("'fortran_order': False"), "f32 in C order: {header}");
    let shape = header.split(['(', ')']).nth(1).expect("a shape");
    let columns = shape.split(',').nth(1).and_then(|text| text.trim().parse().ok()).expect("two dimensions");
    let values = bytes[header_end..].chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    (values.collect(), columns)
}
