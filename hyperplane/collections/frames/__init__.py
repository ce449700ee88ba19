"""What ``hyperplane.dataframe`` is made of."""

from hyperplane.collections.frames import tokens

tokens.register()
