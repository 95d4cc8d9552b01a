"""Objects of inner classes: with flink-scala on its class path, Kryo 2 also writes the field `this$0`.

Kryo 2.24.0 wrote the bytes, with and without flink-scala, of an `Outer.Inner` whose `int n` is 7.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flinkstate.classfiles.class_file import FINAL, PUBLIC, SYNTHETIC, ClassFile, Member
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.errors import DamagedError, RefusedError
from flinkstate.kryo.reading import kryo_reading
from flinkstate.serializers.types import KryoRegistration, KryoType
from tests.kryo.test_to_other_kryo import recoded

WITHOUT_SCALA = b"\x57\1\x0e"
WITH_SCALA = WITHOUT_SCALA + b"\1\0job.Oute\xf2\1"
CAUSE = r"a compiler made (its|the) field this\$0.*if flink-scala is on Flink's class path"


def _kryo() -> KryoType:
    def made(name: str, superclass: str, *fields: Member) -> ClassFile:
        return ClassFile(name, superclass, (), PUBLIC, fields, None, False, (), PUBLIC)

    around = Member("this$0", "Ljob/Outer;", FINAL | SYNTHETIC)
    some = (
        made("job.Outer", "java.lang.Object"),
        made("job.Outer$Base", "java.lang.Object", around),
        made("job.Outer$Inner", "job.Outer$Base", Member("n", "I", PUBLIC)),
    )
    classes = JobClasses("inner", {one.name: one for one in some})
    return KryoType(
        "job.Outer$Inner", registrations=(KryoRegistration("job.Outer$Inner"),), classes=classes, five=False
    )


KRYO = _kryo()


def test_an_upgrade_rewrites_it_where_kryo_wrote_no_such_field() -> None:
    assert recoded(KRYO, WITHOUT_SCALA) == WITHOUT_SCALA


def test_an_upgrade_names_the_class_where_kryo_wrote_the_field() -> None:
    with pytest.raises(DamagedError, match=f"12 more bytes.*{CAUSE}"):
        recoded(KRYO, WITH_SCALA)
    data, start = np.frombuffer(WITH_SCALA[:-1] + bytes(64), np.uint8).copy(), np.array([0])
    with pytest.raises(DamagedError, match=r"more bytes of what Kryo wrote, found its end \(a compiler made"):
        kryo_reading(KRYO).find_ends(data, start, start + 2, five=False, strict=True)


def test_the_way_back_refuses_it_by_name() -> None:
    with pytest.raises(RefusedError, match=rf"job.Outer\$Inner: {CAUSE}"):
        recoded(replace(KRYO, five=True, for_five=False), WITHOUT_SCALA)
