sleep 0.02
