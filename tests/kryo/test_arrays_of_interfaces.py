"""Arrays of an interface or an abstract class of the job: each element says its class.

Kryo 2.24.0 and Kryo 5.6.2 wrote `DRAWING` of the same object. `Circle` implements `Form`, and the fields are:

    Form[] shapes = {circle, null, circle};    // circle.r = 5
    int z = 7;
"""

from __future__ import annotations

import numpy as np
import pytest

from flinkstate.classfiles.class_file import ABSTRACT, FINAL, INTERFACE, PUBLIC, ClassFile, Member
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.kryo.reading import kryo_reading
from flinkstate.serializers.types import KryoRegistration, KryoType
from tests.kryo.test_to_other_kryo import recoded

DRAWING = b"W\1" + b"\1\0[Ljob.Form\xbb\1" + b"\4" + b"\1\1job.Circl\xe5\1\x0a" + b"\0" + b"\1\1\4" + b"\x0e"


def _kryo(access: int) -> KryoType:
    shapes, number = Member("shapes", "[Ljob/Form;", PUBLIC), Member("z", "I", PUBLIC)
    drawing = ClassFile("job.Drawing", "java.lang.Object", (), PUBLIC, (shapes, number), None, False)
    form = ClassFile("job.Form", "java.lang.Object", (), PUBLIC | access, (), None, False)
    radius = (Member("r", "I", PUBLIC),)
    circle = ClassFile("job.Circle", "java.lang.Object", ("job.Form",), PUBLIC | FINAL, radius, None, False)
    if not access & INTERFACE:
        circle = ClassFile("job.Circle", "job.Form", (), PUBLIC | FINAL, radius, None, False)
    job = JobClasses(f"forms {access}", {one.name: one for one in (drawing, form, circle)})
    return KryoType("job.Drawing", registrations=(KryoRegistration("job.Drawing"),), classes=job, five=False)


@pytest.mark.parametrize("access", [ABSTRACT, INTERFACE | ABSTRACT])
def test_it_is_read_and_written_for_the_other_kryo(access: int) -> None:
    kryo = _kryo(access)
    assert recoded(kryo, DRAWING) == DRAWING
    data, start = np.frombuffer(DRAWING + bytes(64), np.uint8).copy(), np.array([0])
    for five in (False, True):
        found = kryo_reading(kryo).find_ends(data, start, start + len(DRAWING) + 9, five=five, strict=False)
        assert found.tolist() == [len(DRAWING)]
