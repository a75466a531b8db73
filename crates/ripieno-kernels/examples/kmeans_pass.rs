//! Benchmark of K-means passes, with the time of each part.
//!
//!     cargo run --release --example kmeans_pass -- [vectors.npy] [clusters] [threads] [passes] [MODE] [probes]
//!
//! `vectors.npy` contains f32 or u8 in C order; without it (or with `ROWSxCOLUMNS`) the vectors are generated. The
//! centroids start at rows `i·n/k`. The mode is `bounds`, `bytes`, `near`, or none. With `bounds` every pass is timed
//! with and without the bounds of the previous pass. With `bytes` the vectors are bytes. Every pass is timed with bytes
//! and with the same values as f32, and compared with the machine's rate of byte products. With `near` the vectors are
//! bytes. Near passes, by default with 16 probes, are compared with exact assignments of a sample of up to 4,096 rows.
//! The rates of passes are nominal: `2·n·k·d` operations.

use ripieno_kernels::{
    DistanceBounds, Matrix, NearIndex, PassOutput, Point, Simd, Threads, assign, assign_accumulate,
    assign_accumulate_near, assign_accumulate_within, recenter,
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
    println!("{} x {columns}, {cluster_count} clusters, {thread_count} threads", points.rows());
    match text(4, "").as_str() {
        "bounds" => return time_bounds(points, cluster_count, &Threads::new(thread_count), pass_count),
        "bytes" => return time_bytes(points, cluster_count, &Threads::new(thread_count), pass_count),
        "near" => {
            let probes = number(5, "16");
            return time_near(points, cluster_count, &Threads::new(thread_count), pass_count, probes);
        }
        _ => {}
    }
    for simd in Simd::available().into_iter().rev() {
        time(points, cluster_count, &Threads::with_simd(thread_count, simd), pass_count);
    }
}

fn time(points: Matrix<f32>, cluster_count: usize, threads: &Threads, pass_count: usize) {
    let (n, d, k) = (points.rows(), points.columns(), cluster_count);
    let mut centroids: Vec<f32> = (0..k).flat_map(|i| points.row(i * n / k)).copied().collect();
    let (mut pass_s, mut assign_s) = (f64::INFINITY, f64::INFINITY);
    let mut inertia = 0.0;
    for _ in 0..pass_count {
        let timed = Timed::of(points, &centroids, threads);
        (pass_s, assign_s) = (pass_s.min(timed.pass_s), assign_s.min(timed.assign_s));
        inertia = timed.inertia;
        recenter(&mut centroids, &timed.sums, &timed.weight_sums);
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

/// A pass with its result, and the seconds of the whole and of the assignment alone.
struct Timed {
    pass_s: f64,
    assign_s: f64,
    inertia: f64,
    labels: Vec<i32>,
    sums: Vec<f64>,
    weight_sums: Vec<f64>,
}

impl Timed {
    fn of<P: Point>(points: Matrix<P>, centroids: &[P::Centroid], threads: &Threads) -> Timed {
        let (n, d) = (points.rows(), points.columns());
        let centroids = Matrix::new(centroids, centroids.len() / d, d);
        let (mut labels, mut sums) = (vec![0; n], vec![0.0; centroids.values().len()]);
        let mut weight_sums = vec![0.0; centroids.rows()];
        let start = Instant::now();
        assign(points, centroids, &mut labels, None, threads);
        let assign_s = start.elapsed().as_secs_f64();

        let start = Instant::now();
        let pass =
            PassOutput { labels: &mut labels, squared_distances: None, sums: &mut sums, weight_sums: &mut weight_sums };
        let inertia = assign_accumulate(points, centroids, None, pass, threads);
        Timed { pass_s: start.elapsed().as_secs_f64(), assign_s, inertia, labels, sums, weight_sums }
    }
}

/// Time passes over bytes and over the same values as f32, alternately.
fn time_bytes(points: Matrix<f32>, cluster_count: usize, threads: &Threads, pass_count: usize) {
    let (n, d, k) = (points.rows(), points.columns(), cluster_count);
    let bytes = as_bytes(points);
    let floats: Vec<f32> = bytes.iter().map(|&byte| byte.into()).collect();
    let (bytes, floats) = (Matrix::new(&bytes, n, d), Matrix::new(&floats, n, d));
    let mut centroids: Vec<f32> = (0..k).flat_map(|i| floats.row(i * n / k)).copied().collect();
    let products = n as f64 * k as f64 * d as f64;
    for number in 1..=pass_count {
        let peak = products_per_s(threads.count());
        let (of_floats, of_bytes) = (Timed::of(floats, &centroids, threads), Timed::of(bytes, &centroids, threads));
        assert_eq!(
            (&of_floats.labels, of_floats.inertia),
            (&of_bytes.labels, of_bytes.inertia),
            "bytes change nothing"
        );
        let rate = products / of_bytes.assign_s;
        println!(
            "pass {number:2}: f32 {:7.1} ms (assign {:7.1}), bytes {:7.1} ms (assign {:7.1}), {:.2} times as fast \
             (assign {:.2}); {:5.1} G products/s, {}; inertia {:.1}",
            of_floats.pass_s * 1e3,
            of_floats.assign_s * 1e3,
            of_bytes.pass_s * 1e3,
            of_bytes.assign_s * 1e3,
            of_floats.pass_s / of_bytes.pass_s,
            of_floats.assign_s / of_bytes.assign_s,
            rate / 1e9,
            peak.map_or("without VNNI".to_string(), |peak| format!(
                "{:.0} % of {:.0}",
                100.0 * rate / peak,
                peak / 1e9
            )),
            of_bytes.inertia,
        );
        recenter(&mut centroids, &of_bytes.sums, &of_bytes.weight_sums);
    }
}

/// Convert the values to bytes. Values up to 1 are scaled to 255.
fn as_bytes(points: Matrix<f32>) -> Vec<u8> {
    let max = points.values().iter().fold(0.0, |max: f32, &value| max.max(value));
    let stretch = if max <= 1.0 { 255.0 } else { 1.0 };
    points.values().iter().map(|&value| (value * stretch).round() as u8).collect()
}

/// Time near passes over bytes, and compare them with exact assignments of a sample of the rows.
fn time_near(points: Matrix<f32>, cluster_count: usize, threads: &Threads, pass_count: usize, probes: usize) {
    const SAMPLE_ROWS: usize = 4096;
    let (n, d, k) = (points.rows(), points.columns(), cluster_count);
    let bytes = as_bytes(points);
    let points = Matrix::new(&bytes, n, d);
    let mut centroids: Vec<f32> = (0..k).flat_map(|i| points.row(i * n / k)).map(|&byte| byte.into()).collect();
    let sampled: Vec<usize> = (0..n.min(SAMPLE_ROWS)).map(|at| at * n / n.min(SAMPLE_ROWS)).collect();
    let sample: Vec<u8> = sampled.iter().flat_map(|&row| points.row(row)).copied().collect();
    let sample = Matrix::new(&sample, sampled.len(), d);
    let (mut labels, mut distances) = (vec![0; n], vec![0.0; n]);
    let (mut sums, mut weight_sums) = (vec![0.0; k * d], vec![0.0; k]);
    let (mut exact_labels, mut exact) = (vec![0; sampled.len()], vec![0.0; sampled.len()]);
    let mut index = NearIndex::new();
    for number in 1..=pass_count {
        let start = Instant::now();
        let squared_distances = Some(&mut distances[..]);
        let pass =
            PassOutput { labels: &mut labels, squared_distances, sums: &mut sums, weight_sums: &mut weight_sums };
        let seen = Matrix::new(&centroids, k, d);
        let inertia = assign_accumulate_near(points, seen, None, pass, &mut index, probes, threads);
        let near_s = start.elapsed().as_secs_f64() / n as f64;

        let start = Instant::now();
        assign(sample, seen, &mut exact_labels, Some(&mut exact), threads);
        let exact_s = start.elapsed().as_secs_f64() / sampled.len() as f64;
        let same = sampled.iter().zip(&exact_labels).filter(|&(&row, &label)| labels[row] == label).count();
        let found: f64 = sampled.iter().map(|&row| distances[row]).sum();
        println!(
            "pass {number:2}: near {:.2} µs a row, exact {:.2}: {:.1} times as fast; recall {:.2} %, inertia gap {:.3} \
             %; inertia {inertia:.1}",
            near_s * 1e6,
            exact_s * 1e6,
            exact_s / near_s,
            100.0 * same as f64 / sampled.len() as f64,
            100.0 * (found / exact.iter().sum::<f64>() - 1.0),
        );
        recenter(&mut centroids, &sums, &weight_sums);
    }
}

/// Return the rate of byte products in registers with `vpdpbusd` on some threads, or `None` without VNNI.
fn products_per_s(thread_count: usize) -> Option<f64> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512vnni") {
        const ROUNDS: usize = 4_000_000;
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..thread_count {
                // SAFETY: the machine has the instruction.
                scope.spawn(|| std::hint::black_box(unsafe { vnni::rounds(std::hint::black_box(ROUNDS)) }));
            }
        });
        let products = thread_count * ROUNDS * vnni::PRODUCTS_PER_ROUND;
        return Some(products as f64 / start.elapsed().as_secs_f64());
    }
    None
}

#[cfg(target_arch = "x86_64")]
mod vnni {
    use std::arch::x86_64::*;

    const SUMS: usize = 24;
    /// Sums of 16 lanes of four products.
    pub const PRODUCTS_PER_ROUND: usize = SUMS * 16 * 4;

    /// Repeat as many independent products as can be in flight at once.
    #[target_feature(enable = "avx512f,avx512vnni")]
    pub fn rounds(count: usize) -> i32 {
        let (a, b) = (_mm512_set1_epi8(std::hint::black_box(3)), _mm512_set1_epi8(std::hint::black_box(1)));
        // Sums with equal known values would be merged.
        let mut sums: [__m512i; SUMS] = std::array::from_fn(|at| _mm512_set1_epi32(std::hint::black_box(at as i32)));
        for _ in 0..count {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, a, b);
            }
        }
        sums.into_iter().map(|sum| _mm512_reduce_add_epi32(sum)).fold(0, i32::wrapping_add)
    }
}

fn time_bounds(points: Matrix<f32>, cluster_count: usize, threads: &Threads, pass_count: usize) {
    let (n, d, k) = (points.rows(), points.columns(), cluster_count);
    let mut centroids: Vec<f32> = (0..k).flat_map(|i| points.row(i * n / k)).copied().collect();
    let (mut labels, mut sums, mut weight_sums) = (vec![0; n], vec![0.0; k * d], vec![0.0; k]);
    let (mut bounds, mut plain_s, mut bounded_s) = (DistanceBounds::new(size_of_val(points.values())), 0.0, 0.0);
    for number in 1..=pass_count {
        let mut timed = |bounds: Option<&mut DistanceBounds>| {
            let (labels, sums, weight_sums) = (&mut labels[..], &mut sums[..], &mut weight_sums[..]);
            let pass = PassOutput { labels, squared_distances: None, sums, weight_sums };
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

/// Return the vectors of an .npy file, or generated ones for `ROWSxCOLUMNS`, and the number of columns.
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
    assert!(header.contains("'fortran_order': False"), "in C order: {header}");
    let shape = header.split(['(', ')']).nth(1).expect("a shape");
    let columns = shape.split(',').nth(1).and_then(|text| text.trim().parse().ok()).expect("two dimensions");
    let values = &bytes[header_end..];
    if header.contains("|u1") {
        return (values.iter().map(|&byte| byte.into()).collect(), columns);
    }
    assert!(header.contains("<f4"), "f32 or u8: {header}");
    (values.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(), columns)
}
