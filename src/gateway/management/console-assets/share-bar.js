const SVG = 'http://www.w3.org/2000/svg'
const WIDTH = 100

/** A bar for a share from 0 to 1. The same stands beside it as text. */
export function shareBar(share) {
  const svg = document.createElementNS(SVG, 'svg')
  const attributes = { class: 'share-bar', viewBox: `0 0 ${WIDTH} 1`, 'aria-hidden': 'true' }
  for (const [key, value] of Object.entries({ ...attributes, preserveAspectRatio: 'none' })) {
    svg.setAttribute(key, value)
  }
  const rect = document.createElementNS(SVG, 'rect')
  rect.setAttribute('width', String(Math.max(share > 0 ? 1 : 0, share * WIDTH)))
  rect.setAttribute('height', '1')
  svg.append(rect)
  return svg
}
