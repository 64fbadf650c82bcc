// A Modbus device that is not ours (libmodbus): unit ids 1 to N behind one address, or one unit on a serial line. What
// its arguments, commands and truth are: see tests/peers.py. Requests are answered one after another, as a small device
// does it.

#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <modbus.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define READ_HOLDING 3
#define FIRST 700 // register of channel 0; a float32 takes two
#define REGISTERS 1000
#define MAX_UNITS 247

#pragma pack(push, 1)
struct row {
    int32_t tag;
    uint32_t status;
    int64_t time; // µs
    double value;
    int64_t at; // µs
};
#pragma pack(pop)

static const char *prefix;
static char names_path[PATH_MAX];
static FILE *numbers;
static int header; // bytes before the function code; the last one is the unit id
static int first = 1, units = 1, count, delay_ms, close_each, single;
static const char *serial; // path of the device
static modbus_mapping_t *registers[MAX_UNITS + 1];
static long answers[MAX_UNITS + 1];

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

// In the truth a channel's place is unit by unit as they were added: i * units + unit - first.
static void name_all(void) {
    char partial[PATH_MAX + 16];
    snprintf(partial, sizeof partial, "%s.partial", names_path);
    FILE *file = fopen(partial, "w");
    if (!file)
        fail(partial);
    for (int i = 0; i < count; i++)
        for (int unit = first; unit < first + units; unit++)
            fprintf(file, "%s\"%s/unit%d/c%d\"", i || unit > first ? "," : "[", prefix, unit, i);
    fprintf(file, "]");
    if (fclose(file) || rename(partial, names_path))
        fail(names_path);
}

// A new value of every channel that this request reads whole: in the truth before it is sent.
static void show(int unit, int start, int length) {
    answers[unit]++;
    for (int i = 0; i < count; i++) {
        int at = FIRST + 2 * i;
        if (at < start || at + 2 > start + length)
            continue;
        float value = (float)(answers[unit] % 100000) + (float)i / 64;
        uint32_t bits; // modbus_set_float_abcd() differs from version to version
        memcpy(&bits, &value, sizeof bits);
        registers[unit]->tab_registers[at] = bits >> 16;
        registers[unit]->tab_registers[at + 1] = bits & 0xffff;
        int64_t time = now();
        struct row row = {i * units + unit - first, 0, time, value, time};
        fwrite(&row, sizeof row, 1, numbers);
    }
    if (fflush(numbers))
        fail("truth");
}

// Whether the connection stays.
static int answered(modbus_t *device, int socket) {
    uint8_t query[MODBUS_TCP_MAX_ADU_LENGTH];
    modbus_set_socket(device, socket);
    int length = modbus_receive(device, query);
    if (length < 0 && serial && errno != EIO) {
        modbus_flush(device); // what was damaged
        return 1;
    }
    if (length < 0)
        return 0;
    if (length == 0)
        return 1;
    usleep((useconds_t)delay_ms * 1000);
    int unit = query[header - 1];
    if (unit < first || unit >= first + units)
        return modbus_reply_exception(device, query, MODBUS_EXCEPTION_GATEWAY_TARGET) >= 0;
    if (query[header] == READ_HOLDING)
        show(unit, query[header + 1] << 8 | query[header + 2], query[header + 3] << 8 | query[header + 4]);
    return modbus_reply(device, query, length, registers[unit]) >= 0 && !close_each;
}

static int obeyed(void) {
    char line[64], word[16] = "";
    int value = 0;
    if (!fgets(line, sizeof line, stdin))
        return 0;
    sscanf(line, "%15s %d", word, &value);
    if (!strcmp(word, "add")) {
        count++;
        name_all();
    } else if (!strcmp(word, "delay"))
        delay_ms = value;
    else if (!strcmp(word, "close"))
        close_each = value;
    else
        fail(word);
    puts("done");
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 5)
        fail("PORT FOLDER PREFIX COUNT [units=N] [delay=MS] [close=1] [single=1] [serial=DEVICE] [unit=N]");
    prefix = argv[3];
    count = atoi(argv[4]);
    for (int i = 5; i < argc; i++)
        if (!strncmp(argv[i], "serial=", 7))
            serial = argv[i] + 7;
        else if (sscanf(argv[i], "unit=%d", &first) != 1 && sscanf(argv[i], "units=%d", &units) != 1 && sscanf(argv[i], "delay=%d", &delay_ms) != 1 &&
                 sscanf(argv[i], "close=%d", &close_each) != 1 && sscanf(argv[i], "single=%d", &single) != 1)
            fail(argv[i]);
    if (first < 1 || units < 1 || first + units > MAX_UNITS + 1 || (serial && units > 1) || count > (REGISTERS - FIRST) / 2)
        fail("units or count");
    setvbuf(stdout, NULL, _IOLBF, 0);
    setvbuf(stdin, NULL, _IONBF, 0); // else select() misses what was read ahead

    char path[PATH_MAX];
    int64_t started = now();
    snprintf(path, sizeof path, "%s/truth", argv[2]);
    mkdir(path, 0777);
    snprintf(names_path, sizeof names_path, "%s/truth/%lld.names.json", argv[2], (long long)started);
    snprintf(path, sizeof path, "%s/truth/%lld.texts.jsonl", argv[2], (long long)started);
    fclose(fopen(path, "ab"));
    snprintf(path, sizeof path, "%s/truth/%lld.modbus.truth", argv[2], (long long)started);
    if (!(numbers = fopen(path, "ab")))
        fail(path);
    name_all();

    for (int unit = first; unit < first + units; unit++)
        if (!(registers[unit] = modbus_mapping_new(0, 0, REGISTERS, 0)))
            fail("registers");
    modbus_t *device =
        serial ? modbus_new_rtu(serial, 19200, 'N', 8, 2) : modbus_new_tcp("127.0.0.1", atoi(argv[1]));
    header = modbus_get_header_length(device);
    modbus_set_indication_timeout(device, 1, 0); // of a request that never ends
    int listening = -1;
    if (serial ? modbus_set_slave(device, first) || modbus_connect(device)
               : (listening = modbus_tcp_listen(device, 16)) < 0)
        fail(serial ? serial : argv[1]);
    puts("ready");

    fd_set all, readable;
    FD_ZERO(&all);
    FD_SET(STDIN_FILENO, &all);
    FD_SET(serial ? modbus_get_socket(device) : listening, &all);
    int clients = 0;
    for (;;) {
        readable = all;
        if (select(FD_SETSIZE, &readable, NULL, NULL, NULL) < 0)
            fail("select");
        for (int fd = 0; fd < FD_SETSIZE; fd++) {
            if (!FD_ISSET(fd, &readable))
                continue;
            if (fd == STDIN_FILENO) {
                if (!obeyed())
                    return 0;
            } else if (fd == listening) {
                int client = accept(listening, NULL, NULL);
                if (client < 0)
                    continue;
                if (client >= FD_SETSIZE || (single && clients)) {
                    close(client);
                    continue;
                }
                clients++;
                FD_SET(client, &all);
            } else if (!answered(device, fd)) {
                if (serial)
                    fail(serial);
                close(fd);
                clients--;
                FD_CLR(fd, &all);
            }
        }
    }
}
