sleep 0.01
