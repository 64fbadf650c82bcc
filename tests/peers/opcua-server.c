// An OPC UA server that is not ours (open62541). What its arguments, commands and truth are: see tests/peers.py.
// Every sampling interval is revised to 0: a write is sampled when it happens. Queues and their overflow are open62541's.

#define _GNU_SOURCE
#include <open62541/plugin/pki_default.h>
#include <open62541/server.h>
#include <open62541/server_config_default.h>

#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_NODES 10000
#define KINDS 5
#define COMMAND_MS 10.0

static const char *const kinds[KINDS] = {"Double", "Float", "Int32", "Boolean", "String"};
static const int types[KINDS] = {
    UA_TYPES_DOUBLE, UA_TYPES_FLOAT, UA_TYPES_INT32, UA_TYPES_BOOLEAN, UA_TYPES_STRING};

#pragma pack(push, 1)
struct row {
    int32_t tag;
    uint32_t status;
    int64_t time; // µs
    double value;
    int64_t at; // µs
};
#pragma pack(pop)

static UA_Server *server;
static const char *prefix;
static char names_path[PATH_MAX];
static FILE *numbers, *texts;
static int count;
static int said; // where answers go: nobody else speaks there
static long round_number;
static int64_t last; // µs, time of the last round
static UA_UInt64 publishing;
static volatile UA_Boolean running = true;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static UA_NodeId node_id(int i, char *name, size_t size) {
    snprintf(name, size, "%s%d", kinds[i % KINDS], i / KINDS);
    return UA_NODEID_STRING(1, name);
}

static void name_all(void) {
    char partial[PATH_MAX + 16], name[64];
    snprintf(partial, sizeof partial, "%s.partial", names_path);
    FILE *file = fopen(partial, "w");
    if (!file)
        fail(partial);
    for (int i = 0; i < count; i++) {
        node_id(i, name, sizeof name);
        fprintf(file, "%s\"%s/%s\"", i ? "," : "[", prefix, name);
    }
    fprintf(file, "]");
    if (fclose(file) || rename(partial, names_path))
        fail(names_path);
}

union value {
    UA_Double d;
    UA_Float f;
    UA_Int32 i;
    UA_Boolean b;
    UA_String s;
};

// The value of node i in this round, as OPC UA and the truth have it; text is for a string's characters.
static double value_of(int i, union value *value, char *text, size_t size) {
    long m = round_number * 100 + i / KINDS;
    switch (i % KINDS) {
    case 0:
        return value->d = m / 8.0;
    case 1:
        return value->f = m / 4.0f;
    case 2:
        return value->i = (UA_Int32)-m;
    case 3:
        return value->b = round_number % 2 == 1;
    default:
        snprintf(text, size, "step %ld", m);
        value->s = UA_STRING(text);
        return 0;
    }
}

static UA_StatusCode status_of(int i) {
    return i / KINDS == 7 && round_number % 3 == 1 ? UA_STATUSCODE_UNCERTAINLASTUSABLEVALUE : 0;
}

// This round's value of every node from first on: in the truth before anybody can see it.
static void publish_from(int first) {
    char name[64], text[64];
    union value value;
    int64_t time = now();
    if (time <= last)
        time = last + 1;
    last = time;
    for (int i = first; i < count; i++) {
        double number = value_of(i, &value, text, sizeof text);
        if (i % KINDS == KINDS - 1) {
            fprintf(texts, "[\"opcua\",%d,%lld,\"%s\",%u,%lld]\n", i, (long long)time, text, status_of(i),
                    (long long)now());
            continue;
        }
        struct row row = {i, status_of(i), time, number, now()};
        fwrite(&row, sizeof row, 1, numbers);
    }
    if (fflush(numbers) || fflush(texts))
        fail("truth");
    for (int i = first; i < count; i++) {
        value_of(i, &value, text, sizeof text);
        UA_DataValue data;
        UA_DataValue_init(&data);
        UA_Variant_setScalar(&data.value, &value, &UA_TYPES[types[i % KINDS]]);
        data.hasValue = data.hasStatus = data.hasSourceTimestamp = true;
        data.status = status_of(i);
        data.sourceTimestamp = time * UA_DATETIME_USEC + UA_DATETIME_UNIX_EPOCH;
        if (UA_Server_writeDataValue(server, node_id(i, name, sizeof name), data) != UA_STATUSCODE_GOOD)
            fail(name);
    }
}

static UA_Double elements[4] = {0, 0.25, 0.5, 0.75};

static void publish_array(void) {
    UA_DataValue data;
    UA_DataValue_init(&data);
    for (int k = 0; k < 4; k++)
        elements[k] = round_number + k / 4.0;
    UA_Variant_setArray(&data.value, elements, 4, &UA_TYPES[UA_TYPES_DOUBLE]);
    data.hasValue = data.hasSourceTimestamp = true;
    data.sourceTimestamp = last * UA_DATETIME_USEC + UA_DATETIME_UNIX_EPOCH;
    if (UA_Server_writeDataValue(server, UA_NODEID_STRING(1, "Array"), data) != UA_STATUSCODE_GOOD)
        fail("Array");
}

static void add_array(void) {
    UA_UInt32 size = 4;
    UA_VariableAttributes attributes = UA_VariableAttributes_default;
    attributes.dataType = UA_TYPES[UA_TYPES_DOUBLE].typeId;
    attributes.valueRank = UA_VALUERANK_ONE_DIMENSION;
    attributes.arrayDimensions = &size;
    attributes.arrayDimensionsSize = 1;
    attributes.displayName = UA_LOCALIZEDTEXT("en", "Array");
    UA_Variant_setArray(&attributes.value, elements, 4, &UA_TYPES[UA_TYPES_DOUBLE]);
    if (UA_Server_addVariableNode(server, UA_NODEID_STRING(1, "Array"), UA_NODEID_NUMERIC(0, UA_NS0ID_OBJECTSFOLDER),
                                  UA_NODEID_NUMERIC(0, UA_NS0ID_ORGANIZES), UA_QUALIFIEDNAME(1, "Array"),
                                  UA_NODEID_NUMERIC(0, UA_NS0ID_BASEDATAVARIABLETYPE), attributes, NULL, NULL))
        fail("Array");
}

// What Drive is: see tests/peers.py.
struct motor {
    UA_Double speed;
    UA_String name;
};
struct extra {
    UA_UInt32 field; // from 1
    union {
        UA_Double number;
        UA_String text;
    } is;
};
struct drive {
    UA_Boolean on;
    UA_Int32 mode;
    struct motor motor;
    UA_Double *torque;
    size_t temperatures_size;
    UA_Double *temperatures;
    struct extra extra;
};

#define BEHIND(type, member, before, size) (offsetof(type, member) - offsetof(type, before) - (size))
#define DRIVE_TYPES 4
static UA_DataType drive_types[DRIVE_TYPES];
static UA_DataTypeMember motor_members[] = {
    {"Speed", &UA_TYPES[UA_TYPES_DOUBLE], 0, false, false},
    {"Name", &UA_TYPES[UA_TYPES_STRING], BEHIND(struct motor, name, speed, sizeof(UA_Double)), false, false},
};
static UA_DataTypeMember extra_members[] = {
    {"Number", &UA_TYPES[UA_TYPES_DOUBLE], offsetof(struct extra, is), false, false},
    {"Text", &UA_TYPES[UA_TYPES_STRING], offsetof(struct extra, is), false, false},
};
static UA_DataTypeMember drive_members[] = {
    {"On", &UA_TYPES[UA_TYPES_BOOLEAN], 0, false, false},
    {"Mode", &drive_types[0], BEHIND(struct drive, mode, on, sizeof(UA_Boolean)), false, false},
    {"Motor", &drive_types[1], BEHIND(struct drive, motor, mode, sizeof(UA_Int32)), false, false},
    {"Torque", &UA_TYPES[UA_TYPES_DOUBLE], BEHIND(struct drive, torque, motor, sizeof(struct motor)), false, true},
    {"Temperatures", &UA_TYPES[UA_TYPES_DOUBLE], BEHIND(struct drive, temperatures_size, torque, sizeof(void *)), true,
     false},
    {"Extra", &drive_types[2], BEHIND(struct drive, extra, temperatures, sizeof(void *)), false, false},
};
static UA_DataType drive_types[DRIVE_TYPES] = {
    {"DriveMode", {1, UA_NODEIDTYPE_NUMERIC, {3001}}, {0}, sizeof(UA_Int32), UA_DATATYPEKIND_ENUM, true, true, 0, NULL},
    {"Motor", {1, UA_NODEIDTYPE_NUMERIC, {3002}}, {1, UA_NODEIDTYPE_NUMERIC, {5002}}, sizeof(struct motor),
     UA_DATATYPEKIND_STRUCTURE, false, false, 2, motor_members},
    {"Extra", {1, UA_NODEIDTYPE_NUMERIC, {3003}}, {1, UA_NODEIDTYPE_NUMERIC, {5003}}, sizeof(struct extra),
     UA_DATATYPEKIND_UNION, false, false, 2, extra_members},
    {"Drive", {1, UA_NODEIDTYPE_NUMERIC, {3004}}, {1, UA_NODEIDTYPE_NUMERIC, {5004}}, sizeof(struct drive),
     UA_DATATYPEKIND_OPTSTRUCT, false, false, 6, drive_members},
};
static UA_DataTypeArray custom_types = {NULL, DRIVE_TYPES, drive_types, false};

struct round_of_drive { // what a drive refers to
    char text[64];
    UA_Double torque, temperatures[4];
};

static struct drive drive_of(long n, struct round_of_drive *of) {
    struct drive drive = {.on = n % 2, .mode = (UA_Int32)(n % 3)};
    snprintf(of->text, sizeof of->text, "step %ld", n);
    of->torque = n + 0.5;
    for (int k = 0; k < 4; k++)
        of->temperatures[k] = n + k / 4.0;
    drive.motor.speed = (UA_Double)n;
    drive.motor.name = UA_STRING(of->text);
    drive.torque = n % 2 ? &of->torque : NULL;
    drive.temperatures_size = 4;
    drive.temperatures = of->temperatures;
    drive.extra.field = n % 2 ? 2 : 1;
    if (n % 2)
        drive.extra.is.text = drive.motor.name;
    else
        drive.extra.is.number = drive.motor.speed;
    return drive;
}

static void publish_value(char *name, UA_Variant value) {
    UA_DataValue data;
    UA_DataValue_init(&data);
    data.value = value;
    data.hasValue = data.hasSourceTimestamp = true;
    data.sourceTimestamp = last * UA_DATETIME_USEC + UA_DATETIME_UNIX_EPOCH;
    if (UA_Server_writeDataValue(server, UA_NODEID_STRING(1, name), data) != UA_STATUSCODE_GOOD)
        fail(name);
}

static UA_UInt32 matrix_size[2] = {2, 3};
static UA_UInt32 drives_size = 2;

static void publish_drive(void) {
    struct round_of_drive of[2];
    struct drive drives[2] = {drive_of(round_number, &of[0]), drive_of(round_number + 1, &of[1])};
    UA_Double matrix[6];
    UA_Variant value;
    UA_Variant_setScalar(&value, &drives[0], &drive_types[3]);
    publish_value("Drive", value);
    UA_Variant_setArray(&value, drives, 2, &drive_types[3]);
    publish_value("Drives", value);
    for (int k = 0; k < 6; k++)
        matrix[k] = round_number + k / 8.0;
    UA_Variant_setArray(&value, matrix, 6, &UA_TYPES[UA_TYPES_DOUBLE]);
    value.arrayDimensions = matrix_size;
    value.arrayDimensionsSize = 2;
    publish_value("Matrix", value);
}

static void add_variable(char *name, const UA_DataType *type, int rank, UA_UInt32 *size, UA_Variant value) {
    UA_VariableAttributes attributes = UA_VariableAttributes_default;
    attributes.dataType = type->typeId;
    attributes.displayName = UA_LOCALIZEDTEXT("en", name);
    attributes.value = value;
    if (rank) {
        attributes.valueRank = rank;
        attributes.arrayDimensions = size;
        attributes.arrayDimensionsSize = (size_t)rank;
    }
    if (UA_Server_addVariableNode(server, UA_NODEID_STRING(1, name), UA_NODEID_NUMERIC(0, UA_NS0ID_OBJECTSFOLDER),
                                  UA_NODEID_NUMERIC(0, UA_NS0ID_ORGANIZES), UA_QUALIFIEDNAME(1, name),
                                  UA_NODEID_NUMERIC(0, UA_NS0ID_BASEDATAVARIABLETYPE), attributes, NULL, NULL))
        fail(name);
}

static void add_drive(void) {
    const UA_UInt32 above[DRIVE_TYPES] = {UA_NS0ID_ENUMERATION, UA_NS0ID_STRUCTURE, UA_NS0ID_UNION, UA_NS0ID_STRUCTURE};
    for (int i = 0; i < DRIVE_TYPES; i++) {
        char *name = (char *)drive_types[i].typeName;
        UA_DataTypeAttributes attributes = UA_DataTypeAttributes_default;
        attributes.displayName = UA_LOCALIZEDTEXT("en", name);
        if (UA_Server_addDataTypeNode(server, drive_types[i].typeId, UA_NODEID_NUMERIC(0, above[i]),
                                      UA_NODEID_NUMERIC(0, UA_NS0ID_HASSUBTYPE), UA_QUALIFIEDNAME(1, name), attributes,
                                      NULL, NULL))
            fail(name);
    }
    struct drive drives[2] = {{.on = false}, {.on = false}};
    UA_Double matrix[6] = {0};
    UA_Variant value;
    UA_Variant_setScalar(&value, &drives[0], &drive_types[3]);
    add_variable("Drive", &drive_types[3], 0, NULL, value);
    UA_Variant_setArray(&value, drives, 2, &drive_types[3]);
    add_variable("Drives", &drive_types[3], 1, &drives_size, value);
    UA_Variant_setArray(&value, matrix, 6, &UA_TYPES[UA_TYPES_DOUBLE]);
    value.arrayDimensions = matrix_size;
    value.arrayDimensionsSize = 2;
    add_variable("Matrix", &UA_TYPES[UA_TYPES_DOUBLE], 2, matrix_size, value);
}

static void add_scalar(const char *name, int type, const void *value) {
    char id[64];
    snprintf(id, sizeof id, "Scalar%s", name);
    UA_VariableAttributes attributes = UA_VariableAttributes_default;
    attributes.dataType = UA_TYPES[type].typeId;
    attributes.displayName = UA_LOCALIZEDTEXT("en", id);
    UA_Variant_setScalarCopy(&attributes.value, value, &UA_TYPES[type]);
    if (UA_Server_addVariableNode(server, UA_NODEID_STRING(1, id), UA_NODEID_NUMERIC(0, UA_NS0ID_OBJECTSFOLDER),
                                  UA_NODEID_NUMERIC(0, UA_NS0ID_ORGANIZES), UA_QUALIFIEDNAME(1, id),
                                  UA_NODEID_NUMERIC(0, UA_NS0ID_BASEDATAVARIABLETYPE), attributes, NULL, NULL))
        fail(id);
    UA_Variant_clear(&attributes.value);
}

// The same values as in tests/integration/ingest/test_opcua_types.py
static void add_scalars(void) {
    UA_Guid guid = {0, 0, 0, {0, 0, 0, 0, 0, 0, 0, 7}};
    UA_DateTime time = 1773057600 * UA_DATETIME_SEC + UA_DATETIME_UNIX_EPOCH;
    UA_ByteString bytes = {2, (UA_Byte *)"\x0a\xff"};
    UA_StatusCode status = UA_STATUSCODE_BADCOMMUNICATIONERROR;
    UA_QualifiedName qualified = UA_QUALIFIEDNAME(1, "Level");
    UA_LocalizedText localized = UA_LOCALIZEDTEXT("de", "läuft");
    UA_String string = UA_STRING("läuft");
    UA_NodeId node = UA_NODEID_STRING(1, "x");
    add_scalar("Boolean", UA_TYPES_BOOLEAN, &(UA_Boolean){true});
    add_scalar("SByte", UA_TYPES_SBYTE, &(UA_SByte){-5});
    add_scalar("Byte", UA_TYPES_BYTE, &(UA_Byte){200});
    add_scalar("Int16", UA_TYPES_INT16, &(UA_Int16){-300});
    add_scalar("UInt16", UA_TYPES_UINT16, &(UA_UInt16){60000});
    add_scalar("Int32", UA_TYPES_INT32, &(UA_Int32){-70000});
    add_scalar("UInt32", UA_TYPES_UINT32, &(UA_UInt32){4000000000u});
    add_scalar("Int64", UA_TYPES_INT64, &(UA_Int64){-9007199254740993});
    add_scalar("UInt64", UA_TYPES_UINT64, &(UA_UInt64){UINT64_MAX});
    add_scalar("Float", UA_TYPES_FLOAT, &(UA_Float){1.5f});
    add_scalar("Double", UA_TYPES_DOUBLE, &(UA_Double){0.1});
    add_scalar("String", UA_TYPES_STRING, &string);
    add_scalar("DateTime", UA_TYPES_DATETIME, &time);
    add_scalar("Guid", UA_TYPES_GUID, &guid);
    add_scalar("ByteString", UA_TYPES_BYTESTRING, &bytes);
    add_scalar("NodeId", UA_TYPES_NODEID, &node);
    add_scalar("StatusCode", UA_TYPES_STATUSCODE, &status);
    add_scalar("QualifiedName", UA_TYPES_QUALIFIEDNAME, &qualified);
    add_scalar("LocalizedText", UA_TYPES_LOCALIZEDTEXT, &localized);
}

static void publish(UA_Server *of, void *unused) {
    (void)of, (void)unused;
    round_number++;
    publish_from(0);
    publish_array();
    publish_drive();
}

static void add(void) {
    char name[64], text[64];
    union value value;
    int i = count;
    UA_NodeId id = node_id(i, name, sizeof name);
    UA_VariableAttributes attributes = UA_VariableAttributes_default;
    attributes.dataType = UA_TYPES[types[i % KINDS]].typeId;
    attributes.displayName = UA_LOCALIZEDTEXT("en", name);
    value_of(i, &value, text, sizeof text);
    UA_Variant_setScalar(&attributes.value, &value, &UA_TYPES[types[i % KINDS]]);
    if (i == MAX_NODES ||
        UA_Server_addVariableNode(server, id, UA_NODEID_NUMERIC(0, UA_NS0ID_OBJECTSFOLDER),
                                  UA_NODEID_NUMERIC(0, UA_NS0ID_ORGANIZES), UA_QUALIFIEDNAME(1, name),
                                  UA_NODEID_NUMERIC(0, UA_NS0ID_BASEDATAVARIABLETYPE), attributes, NULL, NULL))
        fail(name);
    count++;
    name_all();
    publish_from(i);
}

static void set_rate(double milliseconds) {
    if (publishing)
        UA_Server_removeCallback(server, publishing);
    publishing = 0;
    if (milliseconds > 0 && UA_Server_addRepeatedCallback(server, publish, NULL, milliseconds, &publishing))
        fail("rate");
}

// Event k has the severity k.
static void raise_events(long events) {
    for (UA_UInt16 k = 1; k <= events; k++) {
        UA_NodeId event;
        UA_DateTime time = UA_DateTime_now();
        if (UA_Server_createEvent(server, UA_NODEID_NUMERIC(0, UA_NS0ID_BASEEVENTTYPE), &event) ||
            UA_Server_writeObjectProperty_scalar(server, event, UA_QUALIFIEDNAME(0, "Time"), &time,
                                                 &UA_TYPES[UA_TYPES_DATETIME]) ||
            UA_Server_writeObjectProperty_scalar(server, event, UA_QUALIFIEDNAME(0, "Severity"), &k,
                                                 &UA_TYPES[UA_TYPES_UINT16]) ||
            UA_Server_triggerEvent(server, event, UA_NODEID_NUMERIC(0, UA_NS0ID_SERVER), NULL, true))
            fail("event");
    }
}

#ifdef UA_ENABLE_SUBSCRIPTIONS_ALARMS_CONDITIONS
#include "opcua-conditions.h"
#else
#define begin_conditions(folder)
#define log_conditions()
#define obey_conditions(word, value) false
#endif

static void answer(char *line) {
    double value = 0;
    char word[16] = "";
    sscanf(line, "%15s %lf", word, &value);
    if (obey_conditions(word, (int)value))
        ;
    else if (!strcmp(word, "add"))
        add();
    else if (!strcmp(word, "burst"))
        for (long i = 0; i < (long)value; i++)
            publish(server, NULL);
    else if (!strcmp(word, "events"))
        raise_events((long)value);
    else if (!strcmp(word, "rate"))
        set_rate(value);
    else
        fail(word);
    dprintf(said, "done\n");
}

static void look_for_commands(UA_Server *of, void *unused) {
    (void)of, (void)unused;
    static char line[256];
    static size_t length;
    fd_set readable;
    log_conditions();
    for (;;) {
        struct timeval none = {0, 0};
        FD_ZERO(&readable);
        FD_SET(STDIN_FILENO, &readable);
        char c;
        if (select(STDIN_FILENO + 1, &readable, NULL, NULL, &none) <= 0)
            return;
        if (read(STDIN_FILENO, &c, 1) != 1) {
            running = false;
            return;
        }
        if (c != '\n') {
            if (length < sizeof line - 1)
                line[length++] = c;
            continue;
        }
        line[length] = 0;
        length = 0;
        answer(line);
    }
}

#ifdef UA_ENABLE_ENCRYPTION
static UA_ByteString content(const char *folder, const char *name) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/pki/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file)
        fail(path);
    UA_ByteString bytes = UA_BYTESTRING_NULL;
    UA_ByteString_allocBuffer(&bytes, 16384);
    bytes.length = fread(bytes.data, 1, bytes.length, file);
    fclose(file);
    return bytes;
}

static UA_StatusCode set_default(UA_ServerConfig *config, UA_UInt16 port, const char *folder) {
    UA_ByteString certificate = content(folder, "cert.der"), key = content(folder, "key.pem");
    return UA_ServerConfig_setDefaultWithSecurityPolicies(config, port, &certificate, &key, NULL, 0, NULL, 0, NULL, 0);
}
#else
static UA_StatusCode set_default(UA_ServerConfig *config, UA_UInt16 port, const char *folder) {
    (void)folder;
    return UA_ServerConfig_setMinimal(config, port, NULL);
}
#endif

static FILE *truth(const char *folder, int64_t started, const char *kind) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/truth/%lld.%s", folder, (long long)started, kind);
    FILE *file = fopen(path, "ab");
    if (!file)
        fail(path);
    return file;
}

int main(int argc, char **argv) {
    if (argc != 6)
        fail("PORT FOLDER PREFIX COUNT MILLISECONDS");
    const char *folder = argv[2];
    char path[PATH_MAX];
    said = dup(STDOUT_FILENO);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    prefix = argv[3];

    snprintf(path, sizeof path, "%s/truth", folder);
    mkdir(path, 0777);
    int64_t started = now();
    snprintf(names_path, sizeof names_path, "%s/truth/%lld.names.json", folder, (long long)started);
    numbers = truth(folder, started, "opcua.truth");
    texts = truth(folder, started, "texts.jsonl");

    UA_ServerConfig config;
    memset(&config, 0, sizeof config);
    if (set_default(&config, (UA_UInt16)atoi(argv[1]), folder))
        fail("configuration");
    UA_CertificateVerification_AcceptAll(&config.secureChannelPKI);
    UA_CertificateVerification_AcceptAll(&config.sessionPKI);
    UA_String_clear(&config.applicationDescription.applicationUri);
    config.applicationDescription.applicationUri = UA_STRING_ALLOC("urn:plantlog:tests:server");
    for (size_t i = 0; i < config.endpointsSize; i++) {
        UA_String_clear(&config.endpoints[i].server.applicationUri);
        config.endpoints[i].server.applicationUri = UA_STRING_ALLOC("urn:plantlog:tests:server");
    }
    snprintf(path, sizeof path, "opc.tcp://127.0.0.1:%s", argv[1]);
    for (size_t i = 0; i < config.serverUrlsSize; i++)
        UA_String_clear(&config.serverUrls[i]);
    config.serverUrls[0] = UA_STRING_ALLOC(path);
    config.serverUrlsSize = 1;
    config.samplingIntervalLimits.min = config.samplingIntervalLimits.max = 0;
    config.lifeTimeCountLimits.max = 1000000;
    config.queueSizeLimits.max = 100000;
    config.customDataTypes = &custom_types;

    server = UA_Server_newWithConfig(&config);
    if (!server)
        fail("server");
    add_array();
    add_scalars();
    add_drive();
    for (int i = atoi(argv[4]); i > 0; i--)
        add();
    if (UA_Server_run_startup(server) || UA_Server_addRepeatedCallback(server, look_for_commands, NULL, COMMAND_MS, NULL))
        fail("start");
    set_rate(atof(argv[5]));
    begin_conditions(folder);
    dprintf(said, "ready\n");
    while (running)
        UA_Server_run_iterate(server, true);
    return 0;
}
