"""The data sets that papers of online action detection share: which videos each has, and what it is scored by."""

from collections.abc import Collection
from dataclasses import dataclass, field

from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, THUMOS_CLASSES, Labels

NOT_ACTIONS = frozenset((BACKGROUND, AMBIGUOUS))
VALIDATION = (
    "51 52 53 54 55 56 57 58 59 60 151 152 153 154 155 156 157 158 159 160 161 162 163 164 165 166 167 168 169 "
    "170 171 172 173 174 175 176 177 178 179 180 181 182 183 184 185 186 187 188 189 190 201 202 203 204 205 "
    "206 207 208 209 210 261 262 263 264 265 266 267 268 269 270 281 282 283 284 285 286 287 288 289 290 311 "
    "312 313 314 315 316 317 318 319 320 361 362 363 364 365 366 367 368 369 370 411 412 413 414 415 416 417 "
    "418 419 420 481 482 483 484 485 486 487 488 489 490 661 662 663 664 665 666 667 668 669 670 681 682 683 "
    "684 685 686 687 688 689 690 781 782 783 784 785 786 787 788 789 790 851 852 853 854 855 856 857 858 859 "
    "860 901 902 903 904 905 906 907 908 909 910 931 932 933 934 935 936 937 938 939 940 941 942 943 944 945 "
    "946 947 948 949 950 981 982 983 984 985 986 987 988 989 990 "
)
"""Numbers of THUMOS'14's validation videos with labels, which all of the field train on."""
TEST = (
    "4 6 7 11 26 28 39 45 46 51 58 62 73 85 113 129 131 173 179 188 211 220 238 242 250 254 270 273 278 285 "
    "292 293 308 319 324 353 355 357 367 372 374 379 392 405 412 413 423 426 429 437 442 443 444 448 450 461 "
    "464 504 505 538 541 549 556 558 560 569 577 591 593 601 602 611 615 617 622 624 626 635 664 665 671 672 "
    "673 689 691 698 701 714 716 718 723 724 730 737 740 756 762 765 767 771 785 786 793 796 798 807 814 839 "
    "844 846 847 854 864 873 882 887 896 897 903 940 946 950 964 981 987 989 991 1008 1038 1039 1040 1058 1064 "
    "1066 1072 1075 1076 1078 1079 1080 1081 1098 1114 1118 1123 1127 1129 1134 1135 1146 1153 1159 1162 1163 "
    "1164 1168 1174 1182 1194 1195 1201 1202 1207 1209 1219 1223 1229 1235 1247 1255 1257 1267 1268 1270 1276 "
    "1281 1292 1307 1309 1313 1314 1319 1324 1325 1339 1343 1358 1369 1389 1391 1409 1431 1433 1446 1447 1452 "
    "1459 1460 1463 1468 1483 1484 1495 1496 1508 1512 1522 1527 1531 1532 1549 1556 1558 "
)
"""Numbers of its test videos with labels."""


@dataclass(frozen=True)
class PublishedSet:
    """A data set as the papers use it."""

    name: str
    metric: str
    """What it is scored by: `mAP` or `mcAP`"""
    n_classes: int
    """Background and ambiguous chunks among them"""
    videos: dict[str, int]
    """How many it has, by subset"""
    classes: tuple[str, ...] = ()
    """In their order; empty where they are not at hand"""
    ids: dict[str, frozenset[str]] = field(default_factory=dict)
    """Videos by subset, as far as they are at hand"""

    def missing(self, subset: str, present: Collection[str]) -> list[str]:
        """Videos of a subset that are not there, as far as their ids are at hand."""
        return sorted(self.ids.get(subset, frozenset()) - set(present))

    def others(self, subset: str, present: Collection[str]) -> list[str]:
        """Videos that the data set does not have in this subset, as far as its ids are at hand."""
        return sorted(set(present) - self.ids[subset]) if subset in self.ids else []


def _ids(prefix: str, numbers: str) -> frozenset[str]:
    return frozenset(f"{prefix}{int(number):07}" for number in numbers.split())


THUMOS = PublishedSet(
    "THUMOS'14",
    "mAP",
    len(THUMOS_CLASSES),
    {"training": 200, "testing": 213},
    THUMOS_CLASSES,
    {"training": _ids("video_validation_", VALIDATION), "testing": _ids("video_test_", TEST)},
)
TVSERIES = PublishedSet(
    "TVSeries",
    "mcAP",
    31,
    {"training": 20, "testing": 7},
    ids={
        "testing": frozenset(
            "24_ep4 Breaking_Bad_ep3 How_I_Met_Your_Mother_ep7 How_I_Met_Your_Mother_ep8 Mad_Men_ep3 "
            "Modern_Family_ep5 Sons_of_Anarchy_ep3".split()
        )
    },
)


def published_set(labels: Labels) -> PublishedSet | None:
    """Which of them labels are of: THUMOS'14 by its actions, TVSeries by a test episode; None for other labels."""
    if {*labels.classes} - NOT_ACTIONS == {*THUMOS_CLASSES} - NOT_ACTIONS:
        return THUMOS
    return TVSERIES if TVSERIES.ids["testing"] & labels.videos.keys() else None
