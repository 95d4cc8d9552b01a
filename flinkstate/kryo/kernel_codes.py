"""What the numbers in the tables and in the results of the compiled reading mean."""

from __future__ import annotations

# How a class is read. The first eight are boxed: their objects have no reference mark.
FOREIGN = 0
INTEGER = 1
LONG = 2
SHORT = 3
BYTE = 4
BOOLEAN = 5
CHARACTER = 6
FLOAT = 7
DOUBLE = 8
STRING = 9
BIG_INTEGER = 10
BIG_DECIMAL = 11
MILLIS = 12
TIMESTAMP = 13
LOCAL_DATE = 14
LOCAL_TIME = 15
LOCAL_DATE_TIME = 16
INSTANT = 17
PRIMITIVE_ARRAY = 18  # with the kind of its elements
OBJECT_ARRAY = 19  # with the class of its elements
EMPTY_LIST = 20
SINGLETON_LIST = 21
LIST = 22
FILLED_LIST = 23
AS_LIST = 24
EMPTY_MAP = 25
SINGLETON_MAP = 26
MAP = 27
SORTED_MAP = 28
TUPLE = 29  # with the number of its fields
EITHER = 30  # with the number of its side
COMPARATOR = 31
ENUM_COMPARATOR = 32
# The line of the kinds, behind those of both Kryos, that says which of the job's objects can be comparators.
COMPARES = 2
# What stays a value of Kryo; the first three unless the type says otherwise.
PARTS = 33
ENUM = 34
ROW = 35
ENUM_SET = 36
SET = 37
FILLED_SET = 38
SORTED_SET = 39
ANY_ARRAY = 40

# Parts without tag and mark: of the kinds above up to LOCAL_DATE_TIME, and these.
POSITIVE_INT = 41
POSITIVE_LONG = 42
EIGHT_BYTES = 43
LONGS = 44
ZONE_OFFSET = 45
# Parts that are objects: with a class tag, or of a class that is known.
TAGGED_PART = 50
KNOWN_PART = 51

# Columns of a part: its kind, its class, its context. A context has for each of two type arguments the class, if it is
# final, and the context inside it; then where the classes that have other parts in it are, and how many. These are in
# the table of parts, too: the class, its first part, and what Kryo keeps of type variables: a bit for each, above these
# how many entries.
PART_KIND = 0
PART_CLASS = 1
PART_CONTEXT = 2
# Columns of a context behind those of its type arguments.
TYPED_AT = 4
TYPED_COUNT = 5
# Where an object stands: in a field, or elsewhere; or elsewhere in a value that is written, without a class tag.
IN_FIELD = 0
ELSEWHERE = 1
WRITTEN_UNTAGGED = 2
KEPT_BITS = 48
# Kryo 5 has room for so many entries of type variables; for more of them it can fail, or not, as it did before.
MOST_KEPT = 16

# What the tags of flat maps stand for: null, and the kinds above up to STRING. There are so many of these tags.
FLAT_NULL = 10
FLAT_TAGS = 11

# What a class of maps can't have.
NO_NULL_KEY = 1
NO_NULL_VALUE = 2
# Of `Map.of`: where the class of keys or values is said for all, Kryo 5 has no marks of null either.
NO_MARKS_BY_5 = 4

# Columns of a node's children; a tuple of Flink has at most so many fields, and so has a row here.
ELEMENT = 0
KEY = 1
VALUE = 2
FIELDS = 3
FIELDS_OF_TUPLES = 25
SIDES = FIELDS + FIELDS_OF_TUPLES  # of an Either: left, right
CHILDREN = SIDES + 2

# Which row of the class table stands for null.
NULL = 0

# Places in `state`, where a reading says what it found.
OUT_END = 0
COUNTED = 1  # whether the map has a count, which the two Kryos write differently
NESTED = 2  # whether anything else in it has other extents by the other Kryo
ENTRIES = 3
NODES = 4
TOUCHED = 5
POSITION = 6  # where a helper has read to
OBJECTS = 7
NAMES = 8
IS_NULL = 9
SERIAL = 10  # of the last copied value, never the same twice
COPIED = 11  # whether anything was copied
COMPARATOR_AT = 12  # where the mark of a comparator is, -1 without one
COMPARATOR_OBJECT = 13  # the object to which it refers, -1 if it is new
NEW_NAMES = 14  # in the copied value
FLAT_BY_5 = 15  # whether Kryo 5 wrote a flat map
FLAT_ROW = 16  # the class of a flat map
SMALL_ARRAY = 17  # where the elements of the last array are whose end Flink 2 reads beyond
FIELD = 18  # what is done with the field in which a map is, see below
CONSTANTS = 19  # of enums in the value that is written for Kryo 2
MOMENTS = 20  # how many are kept behind these places, see below
ZONE_AT = 21  # where the text of the last ZoneRegion is
NEW_OBJECTS = 22  # how many the written value has that can be referred to
KEPT = 23  # what Kryo keeps of type variables for the object of `first_part`
TYPED = 24  # the classes of which Kryo 2 has met objects with type arguments, as bits
STATES = 25

# Of each ZonedDateTime in a ZoneRegion: where the text of the zone is, the year, the month, day, hour, minute and
# second as one number, and the offset.
MOMENT_PARTS = 4

# A value is read whole, or it is an object with a map in a field: that map is taken, or all but it is.
NO_FIELD = 0
TAKEN = 1
LEFT_OUT = 2
# The node of the map then. The object is node 0.
FIELD_NODE = 1

# From here on a cell of a POJO's node says for a subclass at which node its fields are.
SUBCLASS = 2

# What a reading does with the classes that it meets: holds them against those allowed, counts them, or neither.
HOLDING = 0
COUNTING = 1
LOOKING = 2

# A cell says of a class whether it is allowed at a node: 0 no, 1 yes, -k as a number of the wider kind k.

# Columns of an object that may be referred to.
OF_CLASS = 0
OF_NODE = 1
BEGIN = 2
END = 3
SOURCE = 4  # where its content is
OF_VALUE = 5  # the copied value in which it was last, 0 none; its node is -1 then
NEW_NUMBER = 6
OF_CONTEXT = 7
SOURCE_END = 8
NEXT_OBJECT = 9  # how many objects there are behind it
OBJECT_PARTS = 10

MOST_NAMES = 64
MOST_NODES = 1024

# Why a reading failed.
TRUNCATED = 1
BAD_VARINT = 2
BAD_STRING = 3
BAD_COUNT = 4
BAD_MARK = 5
BAD_REFERENCE = 6
CYCLE = 7
TOO_DEEP = 8
LEFTOVER = 9
BAD_CONTENT = 10
FOREIGN_CLASS = 11
WRONG_CLASS = 12
TOO_MANY_NAMES = 13
TOO_MANY_NODES = 14
TOO_LARGE = 15
AMBIGUOUS = 16
BAD_TAG = 17
NO_ROOM = 18
NO_OBJECTS = 19
NULL_PART = 20
BAD_COMPARATOR = 21
NO_MARKS = 22
TWO_CONTEXTS = 23
NOT_DECLARED = 24
READ_BEYOND = 25
WITHOUT_FIELD = 26
BOTH_SIDES = 27
NAMED_FIELDS = 28
OTHER_ROW = 29
NOT_WRITTEN = 30
NO_MOMENTS = 31
TYPE_ARGUMENTS = 32

# What is said of a value.
KRYO_2 = 1
KRYO_5 = 2
NULL_MAP = 4
EMPTY_MAP_FLAG = 8
STOPPED = 16

# Bytes of room behind what is written next.
SPARE = 64
