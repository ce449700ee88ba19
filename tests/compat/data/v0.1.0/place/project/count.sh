echo counted ${YEAR:-nothing}
