"""Oomph, its peers and the bare limits, each as a `System`: what the measurements need to know of one."""
