/** A gateway as people tell it from others: several on one machine have its name in common. */
export const nodeName = ({ name, peer_address: address }) =>
  address ? `${name} (${address})` : name
