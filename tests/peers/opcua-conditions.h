// Conditions of opcua-server.c where open62541 has them, which Debian's library is built without. What the commands are:
// see tests/peers.py. Events are triggered by the library when ActiveState becomes true, and by Acknowledge.

#define LIMITS 2

static const struct {
    const char *name;
    double above;
} limits[LIMITS] = {{"Limit", 70}, {"Hot", 95}};

static struct condition {
    UA_NodeId id, source;
    UA_Boolean active, acked;
    UA_ByteString logged; // id of its last event
} conditions[LIMITS * MAX_NODES / KINDS];
static int conditions_count;
static FILE *event_log;

static void check(UA_StatusCode code, const char *what) {
    if (code != UA_STATUSCODE_GOOD) {
        fprintf(stderr, "%s: %s\n", what, UA_StatusCode_name(code));
        exit(1);
    }
}

static void log_event(UA_ByteString id, UA_UInt32 type) {
    if (!event_log) // nobody can see it yet
        return;
    fprintf(event_log, "{\"id\": \"");
    for (size_t i = 0; i < id.length; i++)
        fprintf(event_log, "%02x", id.data[i]);
    fprintf(event_log, "\", \"type\": \"ns=0;i=%u\"}\n", type);
    fflush(event_log);
}

// The events that the library has triggered since the last call: no more than one of each condition.
static void log_conditions(void) {
    for (int i = 0; i < conditions_count; i++) {
        UA_Variant id;
        check(UA_Server_readObjectProperty(server, conditions[i].id, UA_QUALIFIEDNAME(0, "EventId"), &id), "EventId");
        UA_ByteString *found = id.data;
        if (UA_Variant_hasScalarType(&id, &UA_TYPES[UA_TYPES_BYTESTRING]) && found->length &&
            !UA_ByteString_equal(found, &conditions[i].logged)) {
            log_event(*found, UA_NS0ID_ALARMCONDITIONTYPE);
            UA_ByteString_clear(&conditions[i].logged);
            UA_ByteString_copy(found, &conditions[i].logged);
        }
        UA_Variant_clear(&id);
    }
}

static void set_field(UA_NodeId id, const char *name, void *value, int type) {
    UA_Variant variant;
    UA_Variant_setScalar(&variant, value, &UA_TYPES[type]);
    check(UA_Server_setConditionField(server, id, &variant, UA_QUALIFIEDNAME(0, (char *)name)), name);
}

static void set_state(UA_NodeId id, const char *name, UA_Boolean value) {
    UA_Variant variant;
    UA_Variant_setScalar(&variant, &value, &UA_TYPES[UA_TYPES_BOOLEAN]);
    check(UA_Server_setConditionVariableFieldProperty(server, id, &variant, UA_QUALIFIEDNAME(0, (char *)name),
                                                      UA_QUALIFIEDNAME(0, "Id")),
          name);
}

// Before its event.
static UA_StatusCode acknowledged(UA_Server *of, const UA_NodeId *id) {
    (void)of;
    for (int i = 0; i < conditions_count; i++)
        if (UA_NodeId_equal(&conditions[i].id, id)) {
            conditions[i].acked = true;
            set_field(*id, "Retain", &conditions[i].active, UA_TYPES_BOOLEAN);
        }
    return UA_STATUSCODE_GOOD;
}

static void add_condition(int source, int limit) {
    char name[64], of[64];
    struct condition *new = &conditions[conditions_count++];
    snprintf(name, sizeof name, "%s%d", limits[limit].name, source);
    UA_NodeId variable = node_id(source * KINDS, of, sizeof of), id = UA_NODEID_STRING(1, name);
    UA_NodeId_copy(&variable, &new->source);
    check(UA_Server_createCondition(server, id, UA_NODEID_NUMERIC(0, UA_NS0ID_ALARMCONDITIONTYPE),
                                    UA_QUALIFIEDNAME(1, name), variable, UA_NODEID_NUMERIC(0, UA_NS0ID_HASCOMPONENT),
                                    &new->id),
          name);
    UA_UInt16 severity = 300;
    set_field(new->id, "Severity", &severity, UA_TYPES_UINT16);
    check(UA_Server_setConditionTwoStateVariableCallback(server, new->id, variable, false, acknowledged,
                                                         UA_ENTERING_ACKEDSTATE),
          name);
    new->acked = true;
    set_state(new->id, "EnabledState", true);
}

// Refresh is refused while there are none.
static void begin_conditions(const char *folder) {
    char path[PATH_MAX];
    for (int i = 0; i < (count + KINDS - 1) / KINDS * LIMITS; i++)
        add_condition(i / LIMITS, i % LIMITS);
    log_conditions();
    snprintf(path, sizeof path, "%s/events.jsonl", folder);
    event_log = fopen(path, "a");
    if (!event_log)
        fail(path);
}

// A new value of Double0 …: the alarms that become active or inactive by it have an event each.
static void set_level(int source, double value) {
    for (int limit = 0; limit < LIMITS; limit++) {
        struct condition *one = &conditions[source * LIMITS + limit];
        UA_Boolean active = value > limits[limit].above;
        if (active == one->active)
            continue;
        one->active = active;
        one->acked = one->acked && !active;
        UA_Boolean retain = active || !one->acked;
        UA_LocalizedText message = UA_LOCALIZEDTEXT("en", active ? "active" : "inactive");
        set_field(one->id, "Retain", &retain, UA_TYPES_BOOLEAN);
        set_field(one->id, "Message", &message, UA_TYPES_LOCALIZEDTEXT);
        if (active)
            set_state(one->id, "AckedState", false);
        set_state(one->id, "ActiveState", active);
        if (!active)
            check(UA_Server_triggerConditionEvent(server, one->id, one->source, NULL), "event");
        log_conditions();
    }
}

static void raise(UA_UInt32 type, const char *text) {
    UA_NodeId event;
    UA_ByteString id;
    UA_UInt16 severity = 100;
    UA_DateTime time = UA_DateTime_now();
    UA_LocalizedText message = UA_LOCALIZEDTEXT("en", (char *)text);
    check(UA_Server_createEvent(server, UA_NODEID_NUMERIC(0, type), &event), text);
    check(UA_Server_writeObjectProperty_scalar(server, event, UA_QUALIFIEDNAME(0, "Time"), &time,
                                               &UA_TYPES[UA_TYPES_DATETIME]),
          text);
    check(UA_Server_writeObjectProperty_scalar(server, event, UA_QUALIFIEDNAME(0, "Severity"), &severity,
                                               &UA_TYPES[UA_TYPES_UINT16]),
          text);
    check(UA_Server_writeObjectProperty_scalar(server, event, UA_QUALIFIEDNAME(0, "Message"), &message,
                                               &UA_TYPES[UA_TYPES_LOCALIZEDTEXT]),
          text);
    check(UA_Server_triggerEvent(server, event, UA_NODEID_NUMERIC(0, UA_NS0ID_SERVER), &id, true), text);
    log_event(id, type);
    UA_ByteString_clear(&id);
}

static UA_Boolean obey_conditions(const char *word, int value) {
    static int raised;
    if (!strcmp(word, "high"))
        set_level(value, 80);
    else if (!strcmp(word, "hot"))
        set_level(value, 97);
    else if (!strcmp(word, "normal"))
        set_level(value, 50);
    else if (!strcmp(word, "required"))
        raise(UA_NS0ID_REFRESHREQUIREDEVENTTYPE, "refresh required");
    else if (!strcmp(word, "simple"))
        while (value--) {
            char text[32];
            snprintf(text, sizeof text, "event %d", ++raised);
            raise(UA_NS0ID_BASEEVENTTYPE, text);
        }
    else
        return false;
    return true;
}
