const SVG = 'http://www.w3.org/2000/svg'
const HEIGHT = 32
const STEP = 4

/**
 * Bars for the minutes of the last hour, oldest first; what they say stands beside them as text.
 * @param {string} what
 * @param {number[]} values
 * @param {(value: number) => string} format
 */
export function chart(what, values, format) {
  const most = Math.max(...values, 0)
  const svg = svgElement('svg', {
    class: 'chart',
    viewBox: `0 0 ${values.length * STEP} ${HEIGHT}`,
    preserveAspectRatio: 'none',
    role: 'img',
    'aria-label': `${what} a minute in the last hour: maximum ${format(most)}, last minute ${format(values.at(-1) ?? 0)}`,
  })
  const bars = values
    .map((value, at) => {
      const height = most === 0 ? 0 : Math.max(value > 0 ? 1 : 0, (value / most) * HEIGHT)
      return height === 0
        ? ''
        : `M${at * STEP} ${HEIGHT}v${-height.toFixed(1)}h${STEP - 1}V${HEIGHT}z`
    })
    .join('')
  svg.append(
    svgElement('path', { class: 'chart-line', d: `M0 ${HEIGHT - 0.5}H${values.length * STEP}` }),
    svgElement('path', { class: 'chart-bars', d: bars }),
  )
  return svg
}

function svgElement(name, attributes) {
  const node = document.createElementNS(SVG, name)
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value)
  return node
}
