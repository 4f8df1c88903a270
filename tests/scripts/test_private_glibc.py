"""scripts/private_glibc.sh: which systems can lend a newer C runtime, and from which mirror."""

import pytest


def test_another_distribution_is_sent_to_the_container_image(project):
    (project.folder / "os-release").write_text('ID=fedora\nPRETTY_NAME="Fedora Linux 38"\n')
    result = project.in_shell("private_glibc.sh", "os_release=os-release\nchoose_release")
    assert result.returncode == 1
    assert result.stderr == (
        "error: glibc 2.39 or newer is needed, and only for Debian and Ubuntu can a private one be fetched "
        "(this is Fedora Linux 38); the container image is the other way\n"
    )


def test_without_apt_the_container_image_is_the_way(project):
    (project.folder / "os-release").write_text("ID=debian\nVERSION_CODENAME=bookworm\n")
    lines = "PATH=/nonexistent\nos_release=os-release\nchoose_release"  # the builtins of bash are enough to get there
    result = project.in_shell("private_glibc.sh", lines)
    assert result.returncode == 1
    assert result.stderr == (
        "error: glibc 2.39 or newer is needed, and there is no apt-get to fetch one with; "
        "the container image is the other way\n"
    )


@pytest.mark.parametrize(
    ("listing", "mirrors"),
    [
        (
            "'http://mirror/debian/dists/bookworm/InRelease' x\n"
            "'http://mirror/debian/dists/bookworm-updates/InRelease' x\n"
            "'http://mirror/debian-security/dists/bookworm-security/InRelease' x\n"
            "'https://other.example/apt/dists/bookworm-pgdg/InRelease' x",
            ["http://mirror/debian"],
        ),
        (
            "'mirror+file:/etc/apt/mirrors/debian.list/dists/stable/InRelease' x",
            ["mirror+file:/etc/apt/mirrors/debian.list"],
        ),
        ("'https://other.example/dists/nodistro/InRelease' x", []),
    ],
)
def test_the_mirror_is_that_of_the_main_archive(project, tmp_path, listing, mirrors):
    apt = tmp_path / "bin" / "apt-get"
    apt.parent.mkdir()
    apt.write_text(f'#!/bin/bash\ncat <<"LISTING"\n{listing}\nLISTING\n')
    apt.chmod(0o755)
    result = project.in_shell(
        "private_glibc.sh", f"PATH={apt.parent}:$PATH\nid=debian codename=bookworm\nmirrors_of_main_archive"
    )
    assert result.stdout.split() == mirrors
    assert result.returncode == 0
