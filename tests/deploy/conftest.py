from tests.worker.conftest import bench

__all__ = ["bench"]
