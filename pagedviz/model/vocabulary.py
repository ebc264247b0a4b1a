"""The words that the toy model can generate. It can read any token."""

VOCABULARY = (
    "the a of and to in that it is was for on with as his her they be at one have this from by hot but what some we can"
    " out other were all there when up use your how said an each she which do their time if will way about many then"
    " them write would like so these long make thing see him two has look more day could go come did number sound no"
    " most people my over know water than call first who may down side been now find"
).split()
