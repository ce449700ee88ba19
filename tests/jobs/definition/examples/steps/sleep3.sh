sleep 0.03
