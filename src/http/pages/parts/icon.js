const SVG = 'http://www.w3.org/2000/svg'

/** Paths in a viewBox of 24 by 24, for a stroke width of 1.75. */
const PATHS = {
  devices: 'M4 5h16v10H4zM9 19h6M12 15v4',
  endpoints: 'M4 12h12M12 8l4 4-4 4M20 4v16',
  invitations: 'M3 6h18v13H3zM3 7l9 7 9-7',
  domains: 'M12 3a9 9 0 100 18 9 9 0 000-18zM3 12h18M12 3c3 3 3 15 0 18M12 3c-3 3-3 15 0 18',
  certificates: 'M5 4h14v11H5zM8 8h8M8 11h5M12 15v6l2-1.5 2 1.5v-6',
  'client-cas': 'M12 4l7 3v5c0 4-3 7-7 8-4-1-7-4-7-8V7zM9 12l2 2 4-4',
  addresses:
    'M12 21s-6-6-6-11a6 6 0 0112 0c0 5-6 11-6 11zM12 12.5a2.5 2.5 0 100-5 2.5 2.5 0 000 5z',
  'error-pages': 'M4 4h16v16H4zM4 9h16M12 12v3M12 17.5h.01',
  'bot-users': 'M5 9h14v10H5zM12 9V5M9 5h6M9 14h.01M15 14h.01',
  authtokens: 'M14.5 9.5a4 4 0 10-3.4 3.9L13 15.5h2v2h2v2h3v-3l-5.7-5.7M9 9h.01',
  'api-keys': 'M7 7l-4 5 4 5M17 7l4 5-4 5M14 4l-4 16',
  secrets: 'M5 11h14v9H5zM8 11V8a4 4 0 018 0v3M12 15v2',
  notifications: 'M4 5h16v11H11l-4 4v-4H4zM8 9h8M8 12h5',
  webhooks: 'M12 4a5 5 0 00-5 5c0 6-2 7-2 7h14s-2-1-2-7a5 5 0 00-5-5zM10 19a2 2 0 004 0',
  nodes: 'M4 4h16v6H4zM4 14h16v6H4zM8 7h.01M8 17h.01',
  audit: 'M6 3h9l4 4v14H6zM9 10h7M9 14h7M9 18h4',
  tunnels: 'M3 18v-5a9 9 0 0118 0v5M8 18v-5a4 4 0 018 0v5',
  doctor: 'M3 12h4l2-6 4 12 3-8 1 2h4',
  log: 'M4 5h16M4 10h16M4 15h10M4 20h7',
  attention: 'M12 5v9M12 18.5h.01',
  skipped: 'M6 12h12',
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  done: 'M5 13l4 4L19 7',
  more: 'M6 9l6 6 6-6',
  open: '',
}

/** Returns an icon for use next to a text with the same meaning. Screen readers skip it. */
export function icon(name) {
  const svg = document.createElementNS(SVG, 'svg')
  svg.setAttribute('viewBox', '0 0 24 24')
  svg.setAttribute('class', 'icon')
  svg.setAttribute('aria-hidden', 'true')
  const path = document.createElementNS(SVG, 'path')
  path.setAttribute('d', PATHS[name])
  svg.append(path)
  return svg
}
