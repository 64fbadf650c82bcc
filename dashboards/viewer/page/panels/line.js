// The path of a series for uPlot: straight from value to value, or in steps, which hold until the next row. A null lifts
// the pen, so that nothing is drawn over a gap; an undefined is the row of another series. uPlot's own builders find gaps
// by columns of pixels, and miss those that are narrower.
export function line(stepped) {
  return (u, index, first, last) => {
    const [times, values, scale] = [u.data[0], u.data[index], u.series[index].scale];
    const [x, y] = [(time) => Math.round(u.valToPos(time, "x", true)), (value) => Math.round(u.valToPos(value, scale, true))];
    const [stroke, fill, band] = [new Path2D(), new Path2D(), new Path2D()];
    const isUpperEdge = u.bands.some(({ series }) => series[0] === index);
    const [foot, top] = [y(isUpperEdge ? u.scales[scale].min : 0), y(u.scales[scale].max)];
    let run = [];
    const end = () => {
      if (run.length === 0) return;
      const [left, right] = [run[0][0], run.at(-1)[0]];
      for (const [path, edge] of [[stroke, null], [fill, foot], [band, top]]) {
        path.moveTo(left, edge ?? run[0][1]);
        for (const point of run) path.lineTo(...point);
        if (edge === null) path.lineTo(Math.max(right, left + 1), run.at(-1)[1]); // one value alone is a dot
        else path.lineTo(right, edge);
      }
      run = [];
    };
    for (let row = first; row <= last; row++) {
      if (values[row] === undefined) continue;
      if (stepped && run.length) run.push([x(times[row]), run.at(-1)[1]]);
      if (values[row] === null) end();
      else run.push([x(times[row]), y(values[row])]);
    }
    end();
    return { stroke, fill, band, clip: null, gaps: [], flags: 1 }; // 1: a band clips its fill, not its line
  };
}
