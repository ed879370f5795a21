"""Jobs that hold the records of one cluster together: the drill, and two stores."""
