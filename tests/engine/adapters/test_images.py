from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from engine.adapters.preparing.images import decode, header
from engine.errors import InvalidInput
from engine.requests import Media

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def encoded(image: Image.Image, format: str = "PNG", **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def quarters() -> Image.Image:
    """40 x 20: red above green on the left, blue above white on the right."""
    image = Image.new("RGB", (40, 20), RED)
    image.paste(GREEN, (0, 10, 20, 20))
    image.paste(BLUE, (20, 0, 40, 10))
    image.paste(WHITE, (20, 10, 40, 20))
    return image


def corners(image: Image.Image) -> list[tuple[int, int, int]]:
    w, h = image.size
    spots = [(w // 4, h // 4), (3 * w // 4, h // 4), (w // 4, 3 * h // 4), (3 * w // 4, 3 * h // 4)]
    return [tuple(255 * (v > 127) for v in image.getpixel(spot)) for spot in spots]


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_each_format_gives_its_pixels_and_its_header_without_them(format):
    options = {"quality": 95} if format in ("JPEG", "WEBP") else {}
    media = Media(encoded(quarters(), format, **options), format=format.lower())

    seen = header(media)
    image = decode(media)

    assert (seen.width, seen.height, seen.format) == (40, 20, format)
    assert image.mode == "RGB"
    assert corners(image) == [RED, BLUE, GREEN, WHITE]


def test_a_header_needs_no_pixels():
    whole = encoded(Image.effect_noise((500, 400), 90), "JPEG")

    assert header(Media(whole[: len(whole) // 20])).pixels == 200_000


UPRIGHT = {
    1: [RED, BLUE, GREEN, WHITE],
    2: [BLUE, RED, WHITE, GREEN],
    3: [WHITE, GREEN, BLUE, RED],
    4: [GREEN, WHITE, RED, BLUE],
    5: [RED, GREEN, BLUE, WHITE],
    6: [GREEN, RED, WHITE, BLUE],
    7: [WHITE, BLUE, GREEN, RED],
    8: [BLUE, WHITE, RED, GREEN],
}


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format", ["JPEG", "PNG"])
def test_exif_turns_the_image_and_the_size_in_its_header(orientation, format):
    exif = Image.Exif()
    exif[0x0112] = orientation
    media = Media(encoded(quarters(), format, exif=exif, **({"quality": 95} if format == "JPEG" else {})))

    image = decode(media)

    assert corners(image) == UPRIGHT[orientation]
    assert (header(media).width, header(media).height) == image.size


def test_damaged_exif_leaves_the_picture_as_it_is():
    media = Media(encoded(quarters(), "JPEG", exif=b"Exif\0\0" + b"\xff" * 40, quality=95))

    assert corners(decode(media)) == [RED, BLUE, GREEN, WHITE]


def test_cmyk_palette_and_grey_become_rgb():
    assert corners(decode(Media(encoded(quarters().convert("CMYK"), "JPEG", quality=95)))) == corners(
        quarters()
    )
    assert corners(decode(Media(encoded(quarters().convert("P"), "PNG")))) == corners(quarters())
    assert decode(Media(encoded(Image.new("L", (4, 4), 7)))).getpixel((0, 0)) == (7, 7, 7)
    assert decode(Media(encoded(Image.new("1", (4, 4), 1)))).getpixel((0, 0)) == WHITE


def test_transparent_parts_are_on_white():
    rgba = Image.new("RGBA", (4, 4), (255, 0, 0, 128))
    rgba.putpixel((0, 0), (255, 0, 0, 0))
    image = decode(Media(encoded(rgba)))

    assert image.getpixel((0, 0)) == WHITE
    assert image.getpixel((1, 1)) == (255, 127, 127)


def test_sixteen_bits_are_scaled_not_clipped():
    wide = Image.fromarray(np.array([[0, 4660, 65535]], np.uint16))
    image = decode(Media(encoded(wide)))

    assert [image.getpixel((x, 0)) for x in range(3)] == [(0, 0, 0), (18, 18, 18), WHITE]


def test_an_image_over_the_limit_is_refused_by_its_header_alone():
    chunk = struct.pack(">IIBBBBB", 30_000, 20_000, 8, 2, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + chunk
    bomb += struct.pack(">I", zlib.crc32(b"IHDR" + chunk)) + struct.pack(">I", 0) + b"IDAT" + b"\0" * 4

    for reader in (header, decode):
        with pytest.raises(InvalidInput) as refused:
            reader(Media(bomb))
        assert str(refused.value) == (
            "The image has 600000000 pixels (30000 x 20000); the limit is 100000000."
        )


@pytest.mark.parametrize("size", [(1, 201), (20_000, 99), (1, 1_000_000)])
def test_a_line_is_refused_before_it_is_scaled_by_its_short_side(size):
    for reader in (header, decode):
        with pytest.raises(InvalidInput, match=f"a line of {size[0]} x {size[1]} pixels"):
            reader(Media(encoded(Image.new("L", size))))
    assert header(Media(encoded(Image.new("L", (200, 1))))).width == 200


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "The image is empty: 0 bytes."),
        (b"<html><body>hello</body></html>", "are no image that this server reads"),
        (b"%PDF-1.7", "are no image that this server reads"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "cannot be decoded"),
        (b"\x89PNG\r\n\x1a\n", "cannot be decoded"),
    ],
)
def test_bytes_that_are_no_image_are_refused_and_why(data, complaint):
    with pytest.raises(InvalidInput, match=complaint):
        header(Media(data, format="png" if data[1:4] == b"PNG" else "jpeg"))


def test_a_picture_called_by_another_format_is_refused():
    with pytest.raises(InvalidInput, match="is called JPEG and is PNG"):
        header(Media(encoded(quarters()), format="image/jpg"))


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_a_truncated_picture_is_refused(format):
    whole = encoded(Image.effect_noise((64, 64), 90).convert("RGB"), format)

    with pytest.raises(InvalidInput):
        decode(Media(whole[: len(whole) // 2]))


SAMPLES = [
    encoded(Image.effect_noise((24, 24), 90).convert("RGB"), f)
    for f in ("PNG", "JPEG", "WEBP", "GIF", "TIFF")
]


@pytest.mark.filterwarnings("ignore")  # Pillow warns about damage that it can live with
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damage_gives_an_image_or_one_typed_error(data):
    damaged = bytearray(data.draw(st.sampled_from(SAMPLES)))
    for at, value in data.draw(
        st.lists(st.tuples(st.integers(0, len(damaged) - 1), st.integers(0, 255)), max_size=8)
    ):
        damaged[at] = value
    cut = data.draw(st.integers(0, len(damaged)))

    try:
        image = decode(Media(bytes(damaged[:cut] if data.draw(st.booleans()) else damaged)), 10_000_000)
    except InvalidInput:
        return
    assert image.mode == "RGB"
