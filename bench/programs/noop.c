/* A plugin that does nothing: it reads its configuration and prints a result. Static, so that its start costs the
 * least. Called noop20 or noop1000 it takes that many milliseconds. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char result[] =
    "{\"cniVersion\":\"1.0.0\",\"interfaces\":[{\"name\":\"eth0\",\"mac\":\"02:00:00:00:00:01\",\"sandbox\":"
    "\"/run/netns/bench\"}],\"ips\":[{\"interface\":0,\"address\":\"10.1.0.5/16\",\"gateway\":\"10.1.0.1\"}],"
    "\"routes\":[{\"dst\":\"0.0.0.0/0\"}],\"dns\":{\"nameservers\":[\"10.1.0.1\"]}}";

int main(int argc, char **argv) {
    static char buffer[1 << 16];
    while (read(0, buffer, sizeof buffer) > 0) {
    }
    const char *name = strrchr(argv[0], '/');
    long milliseconds = atol((name ? name + 1 : argv[0]) + 4);
    if (milliseconds > 0) {
        struct timespec pause = {milliseconds / 1000, milliseconds % 1000 * 1000000};
        nanosleep(&pause, NULL);
    }
    return argc > 0 && write(1, result, sizeof result - 1) == sizeof result - 1 ? 0 : 1;
}
