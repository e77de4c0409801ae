"""The file that `lstr watch --init` writes, with a comment for each entry."""

TEMPLATE = """\
# What `lstr watch` does. Check it: lstr watch {name} --check
# A running service reads it again on SIGHUP: kill -HUP its process.

# The model file of `lstr learn`, from this file's folder on.
# Without it, the default model.
model = "fall.lstr"

# Where events are kept. By default a folder beside this file.
# data = "{stem}.data"

# A source that sends nothing for so long is connected anew, with a memory that begins anew too.
# timeout = "5m"

# One table for each camera. An address is what `lstr detect` takes: rtsp://, http://, camera:0 …
# "env:NAME" takes it from the environment, "file:PATH" from the first line of a file.
[sources.hall]
address = "rtsp://192.168.1.10:554/stream"
# model = "other.lstr"                # for this source alone
# Motion counts in these polygons alone: corners from the left and the top, 0 to 1. The page draws them too.
# zones = [[[0.1, 0.2], [0.6, 0.2], [0.6, 0.9], [0.1, 0.9]]]

# One table for each action that is to be decided or told otherwise than the rest.
# [actions.falling]
# on = 0.6                            # begins at this score …
# off = 0.4                           # … and ends below that one; without both, the model's own hold
# min_length = "0.5s"
# tell = ["phone"]                    # these channels alone; [] tells nobody
# cooldown = "1m"                     # after an event on a source, others of it are stored and not told
# quiet = ["22:00-07:00"]             # when nobody is told of it

# For all actions that say nothing else.
# [telling]
# cooldown = "30s"
# most_an_hour = 20                   # for each channel
# quiet = []

# Who is told; any number, each by a name.
# [channels.phone]
# kind = "apprise"                    # whatever Apprise reaches: ntfy, Telegram, e-mail …
# url = "env:PHONE_URL"               # as ntfy://topic
#
# [channels.hook]
# kind = "webhook"                    # JSON by POST, signed
# url = "https://example.org/events"
# secret = "file:hook.secret"
#
# [channels.house]
# kind = "mqtt"                       # with discovery by Home Assistant
# host = "192.168.1.2"
# user = "lstr"
# password = "env:MQTT_PASSWORD"
#
# [channels.light]
# kind = "command"                    # gets the event as JSON on standard input; no shell
# command = ["/usr/local/bin/light", "on"]

# A film and a picture of each event, of the packets that were received. Without this table none are kept.
# [clips]
# before = "5s"
# after = "5s"
# longest = "2m"
# most = "10GB"                       # of all clips; the oldest go first
# days = 30

# The page, on this machine alone unless it says otherwise.
# [page]
# port = 8430
# host = "0.0.0.0"                    # for other machines: needs hosts; better a reverse proxy on this one
# hosts = ["cameras.example.org"]     # the names by which browsers reach it, as through a proxy
# trusted_proxy = true                # a reverse proxy before it says truly that it is https

# How long events are kept.
# [keeping]
# days = 90
"""


def template(name: str) -> str:
    """The text for a file called so."""
    return TEMPLATE.format(name=name, stem=name.removesuffix(".toml"))
