# Copyright the authors of Lockstep. SPDX-License-Identifier: Apache-2.0
"""spack repo add slurm/spack; spack install lockstep, with lockstep-0.1.0.tar.gz in the current folder:
git archive --prefix=lockstep-0.1.0/ -o lockstep-0.1.0.tar.gz HEAD"""

import os

from spack.package import *


class Lockstep(CMakePackage):
    """Training of neural networks on many processes at once: data-parallel and synchronous, over MPI."""

    homepage = "https://example.org/lockstep"
    url = f"file://{os.getcwd()}/lockstep-0.1.0.tar.gz"
    manual_download = True

    license("Apache-2.0")

    # The archive is made of a tree of one's own, so nobody knows its checksum: spack install --no-checksum.
    version("0.1.0")

    variant("cuda", default=False, description="Compute on GPUs, too")
    variant("images", default=True, description="Read JPEG, PNG and WebP files")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")

    depends_on("mpi")
    # The serial flavour; a parallel one works, too, from one thread at a time.
    depends_on("hdf5~mpi")
    depends_on("openblas")
    depends_on("onednn")
    depends_on("boost+program_options")
    depends_on("fmt")
    depends_on("nlohmann-json")
    depends_on("yaml-cpp")
    depends_on("xxhash")
    depends_on("zlib-api")
    depends_on("libjpeg", when="+images")
    depends_on("libpng", when="+images")
    depends_on("libwebp", when="+images")
    depends_on("cuda@12.4:", when="+cuda")
    depends_on("nccl@2.18:", when="+cuda")

    generator("ninja")

    def cmake_args(self):
        return [
            self.define("LOCKSTEP_TESTS", False),
            self.define("CMAKE_UNITY_BUILD", True),
            self.define("LOCKSTEP_CUDA", "ON" if self.spec.satisfies("+cuda") else "OFF"),
        ]

    def setup_run_environment(self, env):
        env.set("LOCKSTEP_SLURM", self.prefix.share.lockstep.slurm)
