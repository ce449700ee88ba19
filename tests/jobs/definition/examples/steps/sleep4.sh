sleep 0.04
