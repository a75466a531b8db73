"""Linear regression and what it shares with PCA: moments of columns, QR factors of rows that lie with many workers."""
