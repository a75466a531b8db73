"""Linear regression, and the column moments and QR factors of distributed rows that it shares with PCA."""
