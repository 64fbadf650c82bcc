// The truth in the simulator's form: what a peer published, in files of its own start.
const fs = require("fs");
const path = require("path");

// Wall clock. performance.timeOrigin is tens of milliseconds off where the process was held up at its start.
const now = () => Date.now() * 1000; // µs since 1970

class Truth {
  constructor(folder, prefix, via) {
    fs.mkdirSync(path.join(folder, "truth"), { recursive: true });
    this.start = path.join(folder, "truth", `${now()}`);
    this.prefix = prefix;
    this.via = via;
    this.names = [];
    this.numbers = fs.openSync(`${this.start}.${via}.truth`, "a");
    this.texts = fs.openSync(`${this.start}.texts.jsonl`, "a");
  }

  named(name) {
    this.names.push(`${this.prefix}/${name}`);
    fs.writeFileSync(`${this.start}.names.json.partial`, JSON.stringify(this.names));
    fs.renameSync(`${this.start}.names.json.partial`, `${this.start}.names.json`);
  }

  // rows: [index of the name, time in µs, value, status]
  published(rows) {
    const numbers = rows.filter((row) => typeof row[2] !== "string");
    const block = Buffer.alloc(32 * numbers.length);
    numbers.forEach(([tag, time, value, status], i) => {
      block.writeInt32LE(tag, 32 * i);
      block.writeUInt32LE(status, 32 * i + 4);
      block.writeBigInt64LE(BigInt(time), 32 * i + 8);
      block.writeDoubleLE(Number(value), 32 * i + 16);
      block.writeBigInt64LE(BigInt(this.via === "modbus" ? time : now()), 32 * i + 24);
    });
    fs.writeSync(this.numbers, block);
    const texts = rows.filter((row) => typeof row[2] === "string");
    const line = ([tag, time, value, status]) => JSON.stringify([this.via, tag, time, value, status, now()]) + "\n";
    if (texts.length) fs.writeSync(this.texts, texts.map(line).join(""));
  }
}

// Nobody else speaks on standard output.
console.log = console.error;
const say = (word) => process.stdout.write(`${word}\n`);

// Commands are lines of standard input, each answered by a line; the end of it ends the process.
const obey = (commands) => {
  const lines = require("readline").createInterface({ input: process.stdin });
  lines.on("line", (line) => {
    const [word, value] = line.split(" ");
    commands[word](Number(value));
    say("done");
  });
  lines.on("close", () => process.exit(0));
};

module.exports = { Truth, now, obey, say };
