"""What nsys is tried with before the job, and by the doctor."""
